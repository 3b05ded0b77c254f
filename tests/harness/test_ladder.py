"""Problems, versions and ladders: what is refused and in which words, schedules, and loading."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirx_ladder.ladder import BrokenVersionError, KernelVersion, Ladder, Problem, UsageError, load


def a_version(tile=(128, 256), blk_k=64, **fields):
    return KernelVersion("v0", "", print, tile, blk_k, **fields)


def refusal(call, *arguments):
    """The one line with which a call is refused."""
    with pytest.raises(UsageError) as caught:
        call(*arguments)
    text = str(caught.value)
    assert text.strip()
    assert len(text.splitlines()) == 1
    return text


# --- Problem


@pytest.mark.parametrize("value", [0, -128, True, False, 128.0, "128", None])
@pytest.mark.parametrize("name", ["m", "n", "k"])
def test_a_size_that_is_no_positive_integer_is_refused_by_name_and_value(name, value):
    text = refusal(lambda: Problem(**{"m": 128, "n": 128, "k": 64, name: value}))
    assert text.startswith(f"{name.upper()} = {value!r}:")
    assert "positive integer" in text


@pytest.mark.parametrize(
    ("matrix", "sizes"), [("A", (2**16, 1, 2**15)), ("B", (1, 2**16, 2**15)), ("D", (2**16, 2**15, 1))]
)
def test_a_matrix_past_int32_is_refused_by_name_and_size(matrix, sizes):
    text = refusal(Problem, *sizes)
    assert text.startswith(f"{matrix} has 65536 x 32768 = {2**31} elements")
    assert "x".join(map(str, sizes)) in text


def test_the_largest_matrix_that_int32_indexes_is_accepted():
    assert Problem(2**31 - 1, 1, 1).m == 2**31 - 1


def test_flops_counts_a_multiplication_and_an_addition_for_each_product():
    assert Problem(2, 3, 5).flops == 60


# --- KernelVersion.check


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ((100, 256, 64), "M = 100 is not a multiple of 128; the nearest that are: 128"),
        ((300, 256, 64), "M = 300 is not a multiple of 128; the nearest that are: 256 and 384"),
        ((128, 100, 64), "N = 100 is not a multiple of 256; the nearest that are: 256"),
        ((128, 384, 64), "N = 384 is not a multiple of 256; the nearest that are: 256 and 512"),
        ((128, 256, 63), "K = 63 is not a multiple of 64; the nearest that are: 64"),
        ((128, 256, 65), "K = 65 is not a multiple of 64; the nearest that are: 64 and 128"),
    ],
)
def test_a_size_off_the_tile_is_refused_with_dimension_value_multiple_and_what_fits(sizes, wanted):
    assert refusal(a_version().check, Problem(*sizes)) == f"v0: {wanted}"


@pytest.mark.parametrize("tiles", [(1, 1, 1), (2, 1, 9), (3, 5, 2)])
@pytest.mark.parametrize("persistent", [True, False])
def test_every_multiple_of_the_tile_is_accepted(tiles, persistent):
    version = a_version(persistent=persistent)
    version.check(version.problem(*tiles))


@pytest.mark.parametrize("tiles", [(2, 1, 1), (1, 2, 1)])
def test_a_single_tile_version_refuses_a_second_tile_and_says_what_it_takes(tiles):
    version = a_version(max_tiles=1)
    text = refusal(version.check, version.problem(*tiles))
    assert "2 output tiles" in text
    assert "M = 128, N = 256" in text
    version.check(version.problem(1, 1, 9))


def test_a_single_k_tile_version_refuses_a_second_k_tile_and_says_what_it_takes():
    version = a_version(max_k_tiles=1)
    text = refusal(version.check, version.problem(3, 3, 2))
    assert "K = 128 is 2 K tiles of 64" in text
    assert "use K = 64" in text
    version.check(version.problem(3, 3, 1))


@pytest.mark.parametrize("sm_count", [0, -2, 1, 3, 147, True, 2.0, "2"])
def test_a_launch_that_is_no_positive_multiple_of_the_cluster_is_refused(sm_count):
    version = a_version(cluster=2, persistent=True)
    text = refusal(version.check, version.problem(1, 1, 1), sm_count)
    assert f"sm_count = {sm_count!r} is not a positive multiple of the cluster size 2" in text


@pytest.mark.parametrize("sm_count", [2, 4, 148])
def test_a_launch_that_is_a_multiple_of_the_cluster_is_accepted(sm_count):
    version = a_version(cluster=2, persistent=True)
    version.check(version.problem(1, 1, 1), sm_count)


def test_a_grid_too_long_in_y_is_refused_with_the_longest_that_is_possible():
    version = a_version(tile=(16, 16), blk_k=16)
    text = refusal(version.check, version.problem(1, 65_536, 1))
    assert f"N = {65_536 * 16}" in text
    assert f"N <= {65_535 * 16}" in text
    version.check(version.problem(1, 65_535, 1))


def test_a_persistent_version_has_no_limit_in_y():
    version = a_version(tile=(16, 16), blk_k=16, persistent=True)
    version.check(version.problem(1, 65_536, 1))


# --- schedule


@st.composite
def launches(draw, persistent=None):
    version = a_version(
        cluster=draw(st.sampled_from([1, 2, 4])),
        persistent=draw(st.booleans()) if persistent is None else persistent,
        l2_group=draw(st.integers(1, 16)),
    )
    grid = draw(st.integers(1, 20)), draw(st.integers(1, 20))
    return version, grid, draw(st.integers(1, 40)) * version.cluster


@given(launches())
def test_a_schedule_visits_every_tile_exactly_once(launch):
    version, (rows, cols), sm_count = launch
    schedule = version.schedule(version.problem(rows, cols, 1), sm_count)
    visited = sorted(tile for tiles in schedule for tile in tiles)
    assert visited == [(row, col) for row in range(rows) for col in range(cols)]


@given(launches(persistent=True))
def test_a_persistent_launch_has_as_many_clusters_as_fit_and_no_two_differ_by_more_than_a_tile(launch):
    version, grid, sm_count = launch
    counts = [len(tiles) for tiles in version.schedule(version.problem(*grid, 1), sm_count)]
    assert len(counts) == sm_count // version.cluster
    assert max(counts) - min(counts) <= 1


def tvm_tile(index, rows, cols, group):
    """What ClusterPersistentScheduler2D computes (_gm_emit_full_and_tail), in Python's integers."""
    full, span = rows // group, group * cols
    if index < full * span:
        return index // span * group + index % span % group, index % span // group
    rest, tail = index - full * span, rows - full * group
    return full * group + rest % tail, rest // tail


@given(launches(persistent=True))
def test_each_cluster_visits_the_tiles_that_tvms_scheduler_gives_it_in_that_order(launch):
    version, grid, sm_count = launch
    schedule = version.schedule(version.problem(*grid, 1), sm_count)
    for cluster, tiles in enumerate(schedule):
        indices = range(cluster, grid[0] * grid[1], len(schedule))
        assert tiles == tuple(tvm_tile(index, *grid, version.l2_group) for index in indices)


def test_the_schedule_agrees_with_the_worked_example_in_tvms_documentation():
    """4 x 4 tiles, 3 clusters, l2_group 2: the docstring's table of tile numbers, and of who computes which.

    The "tile sequence per cluster" printed below those tables gives (2, 0) and (2, 3) to two clusters each.
    """
    numbers = [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]]
    owners = ["0210", "1021", "2102", "0210"]
    version = a_version(persistent=True, l2_group=2)
    schedule = version.schedule(version.problem(4, 4, 1), 3)
    for cluster, tiles in enumerate(schedule):
        assert [numbers[row][col] for row, col in tiles] == list(range(cluster, 16, 3))
        assert {owners[row][col] for row, col in tiles} == {str(cluster)}
    assert schedule[0] == ((0, 0), (1, 1), (0, 3), (3, 0), (2, 2), (3, 3))


def test_a_one_wave_launch_gives_each_cluster_the_tile_of_its_linear_id():
    version = a_version()
    assert version.schedule(version.problem(2, 3, 1))[3] == ((1, 1),)  # blockIdx.x runs fastest


# --- load

HEAD = "from tirx_ladder.ladder import KernelVersion\n"


def record(name):
    return f"KernelVersion({name!r}, 'adds', print, (128, 128), 64)"


def write_file(folder, name, *versions):
    path = folder / f"{name}.py"
    path.write_text(f"{HEAD}LADDER = [{', '.join(map(record, versions))}]\n")
    return path


def write_package(folder, name, **modules):
    """A package whose LADDER lists the modules: the text of each, or None for one that holds a version."""
    package = folder / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"LADDER = {tuple(modules)!r}\n")
    for module, text in modules.items():
        version = f"{HEAD}VERSION = {record(module.split('_')[0])}\n"
        (package / f"{module}.py").write_text(version if text is None else text)
    return package


def names(ladder):
    return [version.name for version in ladder.versions]


def test_the_ladder_that_ships_has_nine_versions_in_order_none_broken():
    ladder = load()
    assert names(ladder) == [f"v{i}" for i in range(1, 10)]
    assert not ladder.broken


def test_a_ladder_loads_from_an_importable_package(tmp_path, monkeypatch):
    write_package(tmp_path, "ladder_by_name", b_second=None, a_first=None)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert names(load("ladder_by_name")) == ["b", "a"]


def test_a_ladder_loads_from_a_file(tmp_path):
    assert names(load(str(write_file(tmp_path, "ladder_file", "x", "y")))) == ["x", "y"]


def test_a_ladder_loads_from_a_package_folder_that_is_on_no_path(tmp_path):
    assert names(load(str(write_package(tmp_path, "ladder_folder", a_one=None, b_two=None)))) == ["a", "b"]


def test_the_spec_of_a_ladder_names_it_from_any_folder(tmp_path, monkeypatch):
    write_file(tmp_path, "ladder_relative", "x")
    monkeypatch.chdir(tmp_path)
    spec = load("ladder_relative.py").spec
    monkeypatch.chdir("/")
    assert names(load(spec)) == ["x"]


def test_two_package_folders_of_one_name_each_give_their_own_versions(tmp_path):
    for side in ("base", "head"):
        text = f"{HEAD}VERSION = {record(side)}\n"
        assert names(load(str(write_package(tmp_path / side, "ladder_twice", v_same=text)))) == [side]


def test_a_ladder_file_named_like_a_module_takes_no_modules_place(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "json", json)
    assert names(load(str(write_file(tmp_path, "json", "x")))) == ["x"]
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ("no_such_ladder", "no ladder 'no_such_ladder'"),
        ("tirx_ladder.no_such_module", "no ladder 'tirx_ladder.no_such_module'"),
        ("no/such/folder", "no ladder at "),
        ("no_such_file.py", "no ladder at "),
        ("", "holds no ladder"),
        ("..", "holds no ladder"),
        ("json", "ladder 'json' has no LADDER"),
    ],
)
def test_what_is_no_ladder_is_refused_by_name(tmp_path, monkeypatch, spec, wanted):
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    assert wanted in refusal(load, spec)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "has no LADDER"),
        ("LADDER = ()", "has no LADDER"),
        ("LADDER = 'v1'", "has no LADDER"),
        ("LADDER = 3", "has no LADDER"),
        ("raise ValueError('bad layout')", "ValueError: bad layout"),
        ("raise ValueError('two\\nlines')", "ValueError: two"),
        ("import no_such_dependency", "no_such_dependency"),
        ("LADDER = (", "SyntaxError"),
        (f"{HEAD}LADDER = [{record('x')}, {record('y')}, {record('x')}]", "two versions of one name: x, y, x"),
    ],
)
def test_a_file_that_holds_no_usable_ladder_is_refused_with_the_reason(tmp_path, text, wanted):
    file = tmp_path / "ladder_unusable.py"
    file.write_text(text)
    line = refusal(load, str(file))
    assert wanted in line
    assert str(file) in line


def test_a_package_without_one_of_its_dependencies_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "ladder_needing_more.py").write_text("import ladder_needing\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "cannot be imported: No module named 'ladder_needing'" in refusal(load, "ladder_needing_more")


def test_a_module_whose_version_is_something_else_is_refused_by_name(tmp_path):
    folder = write_package(tmp_path, "ladder_of_strings", v1_good=None, v2_text="VERSION = 'v2'")
    assert "VERSION of v2_text is 'v2'" in refusal(load, str(folder))


BREAKS = {
    "raises": "raise RuntimeError('no such layout')",
    "exits": "raise SystemExit('no such layout')",
    "misses": "import no_such_layout  # no such layout",
    "syntax": "VERSION = (  # no such layout",
    "empty": "",
}


@pytest.mark.parametrize("how", BREAKS)
def test_a_version_that_cannot_be_imported_is_broken_and_the_others_load(tmp_path, how):
    folder = write_package(tmp_path, f"ladder_broken_{how}", v1_good=None, v2_bad=BREAKS[how], v3_good=None)
    ladder = load(str(folder))
    assert names(ladder) == ["v1", "v3"]
    assert list(ladder.broken) == ["v2"]
    assert ladder["v3"].name == "v3"
    with pytest.raises(BrokenVersionError, match="v2_bad cannot be imported"):
        ladder["v2"]


def test_the_reason_of_a_broken_version_is_the_error_that_its_module_raised(tmp_path):
    folder = write_package(tmp_path, "ladder_with_reason", v1_bad=BREAKS["raises"], v2_good=None)
    assert load(str(folder)).broken["v1"].endswith("RuntimeError: no such layout")


def test_no_broken_version_hides_another(tmp_path):
    folder = write_package(tmp_path, "ladder_both_broken", fast_a="1 / 0", fast_b="1 / 0", v1_good=None)
    try:
        reasons = " ".join(load(str(folder)).broken.values())
    except UsageError as error:  # to refuse two versions of one name is as good
        reasons = str(error)
    assert "fast_a" in reasons or "two versions" in reasons
    assert "fast_b" in reasons or "two versions" in reasons


def test_an_unknown_version_is_refused_with_the_names_of_the_known_ones():
    text = refusal(Ladder("mine", (a_version(), KernelVersion("v7", "", print, (16, 16), 16))).__getitem__, "v10")
    assert "'v10'" in text
    assert "v0, v7" in text
