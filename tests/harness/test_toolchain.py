"""The simulator's toolchain and cache: what is missing or damaged is said in one line, and only kernels are pruned."""

import os
from pathlib import Path

import pytest

from tirx_ladder import toolchain
from tirx_ladder.ladder import UsageError

NEW = "rustc 1.95.0 (abc 2026-01-01)"


@pytest.fixture
def machine(tmp_path, monkeypatch, store):
    """A user with an empty home and a PATH of one empty folder, which is returned."""
    for variable in ("NUMSIM_CARGO", "NUMSIM_RUSTC", "XDG_CACHE_HOME", "NUMSIM_GENERATED_OPT_LEVEL"):
        monkeypatch.delenv(variable, raising=False)
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(folder))
    return folder


def script(folder, name, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def install(folder, version=NEW):
    """A cargo, a rustc that says it is of some version, and a cc."""
    for tool in ("cargo", "rustc", "cc"):
        script(folder, tool, f"#!/bin/sh\necho '{version}'\n")


def refusal(call, *arguments):
    """The one line with which a call is refused."""
    with pytest.raises(UsageError) as caught:
        call(*arguments)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text


# --- cargo and rustc


@pytest.mark.parametrize("where", ["on PATH", "in ~/.cargo/bin", "in NUMSIM_CARGO"])
@pytest.mark.parametrize("version", [NEW, "rustc 1.89.0 (x)", "rustc 2.0.0-nightly (x)"])
def test_a_recent_toolchain_and_an_empty_cache_are_enough(machine, tmp_path, monkeypatch, where, version):
    folder = {"on PATH": machine, "in ~/.cargo/bin": tmp_path / "home" / ".cargo" / "bin"}.get(where, tmp_path / "rust")
    install(folder, version)
    if where == "in NUMSIM_CARGO":
        monkeypatch.setenv("NUMSIM_CARGO", str(folder / "cargo"))
        monkeypatch.setenv("NUMSIM_RUSTC", str(folder / "rustc"))
    toolchain.require()
    assert str(folder) in toolchain.worker_environment()["PATH"].split(os.pathsep)


@pytest.mark.parametrize("missing", ["cargo", "rustc"])
def test_a_missing_tool_is_named_with_how_to_install_it(machine, missing):
    install(machine)
    (machine / missing).unlink()
    text = refusal(toolchain.require)
    assert text.startswith(f"{missing} is not there")
    assert "1.89 or later" in text
    assert "rustup.rs" in text


def test_a_tool_that_a_variable_names_but_is_missing_is_named_by_its_path(machine, monkeypatch):
    install(machine)
    monkeypatch.setenv("NUMSIM_CARGO", "/no/such/cargo")
    assert refusal(toolchain.require).startswith("/no/such/cargo is not there")


@pytest.mark.parametrize("version", ["1.70.0", "1.88.1", "0.99.0"])
def test_a_rustc_too_old_is_refused_with_its_version_the_one_wanted_and_the_command(machine, version):
    install(machine, f"rustc {version} (x)")
    text = refusal(toolchain.require)
    assert f"rustc {version.rpartition('.')[0]} is too old" in text
    assert "1.89 or later" in text
    assert "rustup update" in text


@pytest.mark.parametrize(
    "text",
    ["#!/bin/sh\necho error: no default toolchain >&2\necho help: set one >&2\nexit 1\n", "#!/bin/sh\n", "garbage", ""],
    ids=["fails", "is silent", "is no program", "is empty"],
)
def test_a_rustc_that_does_not_work_is_refused_with_what_it_said(machine, text):
    install(machine)
    script(machine, "rustc", text)
    line = refusal(toolchain.require)
    assert "rustc" in line
    assert "repair the Rust toolchain" in line
    assert ("no default toolchain" in line) == ("no default toolchain" in text)


# --- the workers' environment


def test_a_virtual_environment_on_path_changes_nothing_for_the_workers(machine, tmp_path, monkeypatch):
    install(machine)
    outside = toolchain.worker_environment()
    script(tmp_path / "venv" / "bin", "python", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'venv' / 'bin'}{os.pathsep}{machine}")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    assert toolchain.worker_environment() == outside
    assert "venv" not in outside["PATH"]


def test_the_workers_keep_both_of_the_simulators_caches_in_the_one_root(machine, store):
    environment = toolchain.worker_environment()
    assert environment["NUMSIM_CACHE_DIR"] == environment["NUMSIM_BUILD_CACHE_DIR"] == str(store)


def test_the_cache_is_where_the_simulators_variable_says_else_in_the_users_cache(machine, tmp_path, monkeypatch):
    monkeypatch.delenv("NUMSIM_CACHE_DIR")
    assert toolchain.cache_root() == tmp_path / "home" / ".cache" / "tirx-ladder" / "numsim"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert toolchain.cache_root() == tmp_path / "xdg" / "tirx-ladder" / "numsim"
    monkeypatch.setenv("NUMSIM_CACHE_DIR", "~/mine")
    assert toolchain.cache_root() == tmp_path / "home" / "mine"


# --- a cache that cannot be used


def test_a_cache_that_is_not_there_is_made_for_this_user_alone(tmp_path):
    toolchain.require_cache(tmp_path / "new" / "cache")
    assert (tmp_path / "new" / "cache").stat().st_mode & 0o777 == 0o700
    assert not list((tmp_path / "new" / "cache").iterdir())


def test_a_cache_under_a_regular_file_is_refused_with_its_path_and_the_variable(machine, tmp_path, monkeypatch):
    install(machine)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMSIM_CACHE_DIR", str(tmp_path / "file" / "cache"))
    text = refusal(toolchain.require)
    assert str(tmp_path / "file" / "cache") in text
    assert "NUMSIM_CACHE_DIR" in text
    assert "name a folder that can be" in text


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_cache_that_others_can_write_is_refused_with_the_command_that_mends_it(store, mode):
    store.chmod(mode)
    assert f"chmod go-w {store}" in refusal(toolchain.require_cache, store)


def test_a_cache_of_another_user_is_refused(store, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: store.stat().st_uid + 1)
    assert f"belongs to user {store.stat().st_uid}" in refusal(toolchain.require_cache, store)


@pytest.mark.parametrize("part", ["artifacts", "compile", "cargo-target", "dependencies", "engines", "locks", "tmp"])
def test_a_damaged_cache_is_refused_and_the_command_that_the_message_gives_mends_it(store, part):
    (store / part).write_text("")
    text = refusal(toolchain.require_cache, store)
    assert part in text
    assert "cache --clear" in text
    toolchain.clear(store)
    toolchain.require_cache(store)


# --- use, prune, clear

KIB = 1024


def put(store, name, kib, used=0):
    """An entry of some size, last used at some time."""
    entry = store / name
    entry.mkdir(parents=True)
    (entry / "data").write_bytes(os.urandom(kib * KIB))
    os.utime(entry, (used, used))
    return entry


@pytest.fixture
def full(store):
    """A cache with engines of 3 x 256 KiB and kernels of 5 x 128 KiB, the fourth used longest ago."""
    for part in ("engines", "cargo-target", "dependencies"):
        put(store, f"{part}/key", 256, used=1)
    for name, used in (("artifacts/a", 40), ("artifacts/b", 20), ("artifacts/c", 50), ("compile/entries/d", 10),
                       ("compile/entries/e", 30)):  # fmt: skip
        put(store, name, 128, used)
    return store


def kernels(store):
    return sorted(entry.name for kind in ("artifacts", "compile/entries") for entry in (store / kind).iterdir())


def test_use_tells_engines_from_kernels_and_counts_all_there_is(full):
    use = toolchain.cache_use(full)
    assert use.entries == 5
    assert 5 * 128 * KIB <= use.kernels < 5 * 192 * KIB
    assert 3 * 256 * KIB <= use.engines < 3 * 320 * KIB
    assert use.kernels + use.engines <= use.total < use.kernels + use.engines + 128 * KIB


def test_an_empty_cache_and_one_that_is_not_there_use_no_kernels(store):
    for root in (store, store / "missing"):
        use = toolchain.cache_use(root)
        assert (use.engines, use.kernels, use.entries) == (0, 0, 0)


@pytest.mark.parametrize(("drop", "left"), [(0, "abcde"), (1, "abce"), (2, "ace"), (3, "ac"), (4, "c"), (5, "")])
def test_prune_drops_the_least_recently_used_kernels_first_and_no_more_than_it_must(full, drop, left):
    total = toolchain.cache_use(full).total
    use = toolchain.prune(full, total - drop * 128 * KIB)
    assert kernels(full) == list(left)
    assert use.total <= total - drop * 128 * KIB
    assert all((full / part / "key" / "data").is_file() for part in ("engines", "cargo-target", "dependencies"))


def test_a_kernel_that_was_used_again_outlives_one_that_was_not(full):
    toolchain.touch(full / "compile/entries/d")
    toolchain.prune(full, toolchain.cache_use(full).total - 4 * 128 * KIB)
    assert kernels(full) == ["d"]


def test_prune_keeps_the_engines_even_if_they_alone_are_too_large_and_says_so(full):
    text = refusal(toolchain.prune, full, 100 * KIB)
    assert "engines" in text
    assert "--clear" in text
    assert toolchain.cache_use(full).engines >= 3 * 256 * KIB


@pytest.mark.parametrize("shrink", [lambda root: toolchain.prune(root, 10**6), toolchain.clear], ids=["prune", "clear"])
def test_a_cache_in_use_loses_nothing_until_its_last_user_is_gone(full, shrink):
    with toolchain.in_use(full):
        with toolchain.in_use(full):
            assert "a run is using" in refusal(shrink, full)
        assert "a run is using" in refusal(shrink, full)
        assert kernels(full) == list("abcde")
    shrink(full)
    assert toolchain.cache_use(full).total <= 10**6


def test_clear_empties_the_cache_engines_included(full):
    put(full, "tmp/half-built", 1)
    put(full, "locks", 1)
    toolchain.clear(full)
    use = toolchain.cache_use(full)
    assert (use.engines, use.kernels) == (0, 0)
    assert {path.name for path in full.iterdir()} <= {"in-use.lock"}


@pytest.mark.parametrize("shrink", [lambda root: toolchain.prune(root, 0), toolchain.clear], ids=["prune", "clear"])
def test_a_folder_that_holds_anything_else_loses_nothing_at_all(full, shrink):
    (full / "thesis.tex").write_text("years of work")
    put(full, "tmp/scratch", 1)
    assert "thesis.tex" in refusal(shrink, full)
    assert kernels(full) == list("abcde")
    assert (full / "thesis.tex").read_text() == "years of work"
    assert (full / "tmp" / "scratch").is_dir()


@pytest.mark.parametrize("shrink", [lambda root: toolchain.prune(root, 0), toolchain.clear], ids=["prune", "clear"])
def test_there_is_nothing_to_shrink_where_there_is_no_cache(tmp_path, shrink):
    assert "there is no simulator cache" in refusal(shrink, tmp_path / "missing")
    assert not (tmp_path / "missing").exists()


def test_what_a_killed_process_left_of_its_write_test_does_not_keep_the_cache_from_being_cleared(full, monkeypatch):
    monkeypatch.setattr(Path, "unlink", lambda self, missing_ok=False: None)
    toolchain.require_cache(full)
    monkeypatch.undo()
    toolchain.clear(full)
    assert {path.name for path in full.iterdir()} <= {"in-use.lock"}


def test_a_stray_file_among_the_kernels_does_not_stop_pruning(full):
    (full / "artifacts" / "stray").write_bytes(b"x" * 4096)
    os.utime(full / "artifacts" / "stray", (1, 1))
    toolchain.prune(full, toolchain.cache_use(full).total - 4097)
    assert not (full / "artifacts" / "stray").exists()


def test_clearing_a_cache_whose_part_lies_on_another_disk_removes_the_link(full, tmp_path):
    elsewhere = tmp_path / "big-disk"
    put(tmp_path, "big-disk/key", 1)
    (full / "tmp").symlink_to(elsewhere)
    toolchain.clear(full)
    assert not (full / "tmp").exists()
