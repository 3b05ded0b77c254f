"""The five faults that published versions of this ladder carry: each turns the matrix red and is placed."""

import pytest

from tirx_ladder import cases, check, faults, ladder
from tirx_ladder.faults import catalogue
from tirx_ladder.pool import Pool

PUBLISHED = (
    "no-proxy-fence-before-mma",
    "parity-lag",
    "phases-reset-per-tile",
    "tmem-freed-by-every-warpgroup",
    "cta-sync-after-cluster-init",
)
PLANTED = [
    pytest.param(fault, version, id=f"{fault.name}-{version}")
    for fault in catalogue.FAULTS
    if fault.name in PUBLISHED
    for version in fault.versions
]


@pytest.fixture(scope="module")
def blackwell():
    return ladder.load()


@pytest.fixture(scope="module")
def pool():
    workers = Pool()
    yield workers
    workers.close()


def test_all_five_are_in_the_catalogue():
    assert {param.values[0].name for param in PLANTED} == set(PUBLISHED)


@pytest.mark.parametrize(("fault", "version"), PLANTED)
def test_a_published_fault_is_found_and_its_place_is_named(fault, version, blackwell, pool, tmp_path):
    planted = faults.plant(fault, version, blackwell, tmp_path)
    case = cases.Case(faults.specialisation(fault, blackwell[version]), "exact")
    judge = check.Judge(str(planted), pool)
    judge.plan([case])
    verdict = judge.verdict(case)
    objected = {tool for tool, finding in verdict.findings.items() if finding.verdict != "clean"}
    report = verdict.report(judge.ladder)
    assert not verdict.clean
    assert set(fault.caught) <= objected, report
    assert blackwell[version].source.name in report
    assert fault.place in report


def test_a_fault_whose_place_is_gone_is_an_error(blackwell, tmp_path):
    gone = faults.Fault(
        "gone", "syncs", "nothing", ("racecheck",), "", (1, 1, 1, 1), {"v1": (faults.Edit("no such line", "x"),)}
    )
    with pytest.raises(faults.StaleFaultError, match="found 0 times"):
        faults.plant(gone, "v1", blackwell, tmp_path)
