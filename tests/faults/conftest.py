"""One campaign a run: everything selected is planted and queued at the start, and reported at the end."""

from pathlib import Path

import pytest

from tirx_ladder import ladder, plugin, toolchain
from tirx_ladder.faults.campaign import Campaign
from tirx_ladder.pool import Pool

REPORTS = Path(__file__).parents[2] / "reports"
CAMPAIGN = pytest.StashKey[Campaign]()


@pytest.fixture(scope="session")
def campaign(request, tmp_path_factory):
    try:
        toolchain.require()
    except ladder.UsageError as error:
        pytest.exit(f"tirx-ladder: {error}", returncode=2)
    pool = Pool()
    found = Campaign(ladder.load(), pool, tmp_path_factory.mktemp("planted"))
    request.config.stash[CAMPAIGN] = found
    found.plan(
        (item.callspec.params["fault"], item.callspec.params["version"])
        for item in request.session.items
        if "fault" in getattr(getattr(item, "callspec", None), "params", {})
    )
    yield found
    pool.close()
    found.write(REPORTS)


@pytest.fixture(scope="session")
def progress(request, campaign):
    return plugin.Progress(request.config, campaign.pool, len(request.session.items))


def pytest_terminal_summary(terminalreporter, config):
    campaign = config.stash.get(CAMPAIGN, None)
    if campaign is not None:
        terminalreporter.section("planted faults")
        for line in campaign.lines():
            terminalreporter.write_line(line)
