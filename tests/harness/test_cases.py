"""The matrix as data: what each version is promised, and that the default tier keeps it, for any version."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tirx_ladder import cases
from tirx_ladder.ladder import B200_SMS, KernelVersion, load

VERSIONS = load().versions
of_each_version = pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)


def launch(version, spec):
    """The sm_count of a specialisation, as its version's check() wants it."""
    return spec.sm_count or B200_SMS // version.cluster * version.cluster


def covered(specs):
    return frozenset().union(*(spec.rows for spec in specs))


# What each row says, in terms of the grid (m, n) of tiles, the problem p, K_TILES k, PIPE_DEPTH P, and, for a
# persistent launch, the number c of clusters and the set t of how many tiles each has.
MEANING = {
    "one tile": "m == n == 1",
    "2x1": "(m, n) == (2, 1)",
    "1x2": "(m, n) == (1, 2)",
    "odd grid": "m % 2 and n % 2 and m * n > 1",
    "tall": "p.m > p.n",
    "wide": "p.m < p.n",
    "K>=16": "k >= 16",
    "sm=tiles": "c == m * n",
    "sm>tiles": "c > m * n",
    "sm<tiles": "c < m * n",
    "1 tile each": "t == {1}",
    "some idle": "0 in t",
} | {
    f"{reuse}, {parity} rounds": f"k % 2 == {bit} and {tiles}"
    for reuse, tiles in {
        "2 tiles each": "t == {2}",
        "3 tiles each": "t == {3}",
        "uneven": "len(t) > 1 and 0 not in t",
    }.items()
    for bit, parity in enumerate(("even", "odd"))
}


def keeps(version, spec, row):
    """Whether a specialisation is what a row says, judged without the code under test."""
    m, n = version.grid(spec.problem)
    schedule = version.schedule(spec.problem, launch(version, spec))
    said = MEANING.get(row) or row.replace("K=", "k == ").replace("2P", "2*P").replace("3P", "3*P")
    facts = {
        "m": m, "n": n, "p": spec.problem, "k": version.k_tiles(spec.problem), "P": version.pipe_depth,
        "c": len(schedule), "t": {len(tiles) for tiles in schedule},
    }  # fmt: skip
    return bool(eval(said, facts))  # noqa: S307 (the strings above)


def assert_promises_are_kept(version):
    specs = cases.default_tier(version)
    assert covered(specs) == cases.promised_rows(version)
    for spec in specs:
        version.check(spec.problem, launch(version, spec))
        assert (spec.sm_count is not None) == version.persistent
        assert all(keeps(version, spec, row) for row in spec.rows)
    assert len({spec.id for spec in specs}) == len(specs)


@of_each_version
def test_the_default_tier_keeps_every_promise_to_a_version(version):
    assert_promises_are_kept(version)


@st.composite
def any_version(draw):
    side = st.integers(1, 32).map(lambda units: 16 * units)
    return KernelVersion(
        "v0", "", print, (draw(side), draw(side)), 16 * draw(st.integers(1, 8)),
        pipe_depth=draw(st.integers(1, 8)), cluster=draw(st.sampled_from([1, 2, 4])), persistent=draw(st.booleans()),
        l2_group=draw(st.integers(1, 16)), max_tiles=draw(st.sampled_from([None, 1])),
        max_k_tiles=draw(st.sampled_from([None, 1])),
    )  # fmt: skip


@settings(max_examples=300)
@given(any_version())
def test_the_default_tier_keeps_every_promise_to_any_version_a_user_may_write(version):
    assert_promises_are_kept(version)


@given(any_version())
def test_a_version_is_promised_every_edge_of_its_ring_and_a_long_k(version):
    p = version.pipe_depth
    edges = {k for k in (1, 2, p - 1, p, p + 1, 2 * p - 1, 2 * p, 2 * p + 1, 3 * p + 1) if k >= 1}
    promised = set(cases.k_tiles_rows(version).values())
    if version.max_k_tiles == 1:
        assert promised == {1}
    else:
        assert promised >= edges
        assert max(promised) >= 16
    assert set(cases.k_tiles_rows(version)) <= cases.promised_rows(version)


@given(any_version())
def test_a_version_is_promised_grids_and_launches_exactly_where_it_can_have_them(version):
    rows = cases.promised_rows(version)
    many, persistent = version.max_tiles is None, version.persistent
    assert "one tile" in rows
    assert ({"2x1", "1x2", "odd grid", "tall", "wide"} <= rows) == many
    assert ({"1 tile each", "some idle", "sm=tiles", "sm>tiles"} <= rows) == persistent
    assert ({"sm<tiles", "2 tiles each, odd rounds", "3 tiles each, odd rounds", "uneven, odd rounds"} <= rows) == (
        many and persistent
    )
    assert any(row.endswith("even rounds") for row in rows) == (
        many and persistent and version.max_k_tiles is None
    )  # one K tile is one round, which is odd


@of_each_version
def test_every_promise_stands_in_a_column_of_the_summary(version):
    assert {cases.column(row) for row in cases.promised_rows(version)} <= set(cases.COLUMNS)


@pytest.mark.parametrize(
    ("row", "column"),
    [("odd grid", "shape"), ("2x1", "shape"), ("K=2P-1", "K_TILES"), ("sm<tiles", "launch"), ("some idle", "reuse"),
     ("uneven, even rounds", "reuse"), ("1 tile each", "reuse")],
)  # fmt: skip
def test_a_row_stands_in_the_column_of_what_it_varies(row, column):
    assert cases.column(row) == column


def test_the_ladder_that_ships_has_at_least_55_specialisations():
    assert sum(len(cases.default_tier(version)) for version in VERSIONS) >= 55


def test_case_ids_are_unique_and_say_version_problem_launch_and_inputs():
    specs = [spec for version in VERSIONS for spec in (*cases.default_tier(version), *cases.production_tier(version))]
    ids = [cases.Case(spec, kind).id for spec in specs for kind in cases.INPUTS]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"v[1-9]-\d+x\d+x\d+(-sm\d+)?-(exact|normal|marked|special)", name) for name in ids)
    spec = cases.Specialisation("v7", VERSIONS[6].problem(2, 4, 3), 2, frozenset())
    assert cases.Case(spec, "exact").id == "v7-256x512x192-sm2-exact"


@of_each_version
def test_the_quick_tier_is_one_problem_of_the_default_tier(version):
    (spec,) = cases.quick_tier(version)
    assert spec in cases.default_tier(version)


@of_each_version
def test_the_production_tier_runs_three_clusters_of_the_timed_launch_where_a_version_takes_it(version):
    tier = cases.production_tier(version)
    assert bool(tier) == (version.name not in ("v1", "v2"))
    for spec in tier:
        assert spec.problem == cases.PRODUCTION
        version.check(spec.problem, launch(version, spec))
        launched = len(version.schedule(spec.problem, launch(version, spec)))
        assert len(set(spec.clusters)) == 3
        assert {0, launched - 1} <= set(spec.clusters) <= set(range(launched))


@given(any_version())
def test_the_production_tier_is_empty_for_a_version_that_does_not_take_its_problem(version):
    for spec in cases.production_tier(version):
        version.check(spec.problem, launch(version, spec))
