"""Every fault of the catalogue is caught by the tools that it says, and the good versions raise no alarm."""

import pytest

from tirx_ladder.faults.catalogue import FAULTS

PLANTED = [
    pytest.param(fault, version, id=f"{fault.kind}-{fault.name}-{version}")
    for fault in FAULTS
    for version in fault.versions
]


@pytest.mark.parametrize(("fault", "version"), PLANTED)
def test_fault(fault, version, campaign, progress):
    progress.wait(campaign.futures(fault, version))
    row, report = campaign.judge(fault, version)
    missed = set(fault.caught) - set(row.caught)
    assert not missed, f"{fault.name} in {version}: {fault.did}\nnot caught by {', '.join(sorted(missed))}\n{report}"
    assert fault.place in report, f"no line of the report shows {fault.place!r}:\n{report}"


def test_good_versions_raise_no_alarm(campaign, progress):
    progress.wait(campaign.control_futures())
    assert not campaign.judge_controls()
