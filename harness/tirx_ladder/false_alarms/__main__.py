"""How often the measured gate is wrong: python -m tirx_ladder.false_alarms [CAMPAIGN.json] (docs/false-alarms.md)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from .. import records
from ..ladder import UsageError
from . import drawn, pools, report, simulated

OK, USAGE = 0, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables and their counts to the folder that is asked for, show the tables, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tirx_ladder.false_alarms", description=__doc__)
    parser.add_argument("campaign", nargs="?", type=Path, help="measured pools (simulated noise)")
    parser.add_argument("--trials", type=int, help="of each kind (5000 simulated campaigns, 200 resampled comparisons)")
    parser.add_argument("--seed", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--write", default="reports", metavar="FOLDER", type=Path, help="(%(default)s)")
    options = parser.parse_args(arguments)
    trials = options.trials or (5000 if options.campaign is None else 200)
    if trials < 1 or options.seed < 0:
        parser.error("--trials and --seed: a positive number is wanted")
    try:
        if options.campaign is None:
            study = simulated.study(trials, options.seed, _say)
            text, plain, name = report.simulated(study), records.to_plain(study), "simulated"
        else:
            campaign = pools.read(options.campaign)
            found = drawn.study(campaign, trials, options.seed, _say)
            text, plain, name = report.measured(found, campaign), records.to_plain(found), "measured"
        _write(options.write / f"false-alarms-{name}.md", text)
        told = {"schema": 1, "trials": trials, "seed": options.seed, "study": plain}
        _write(options.write / f"false-alarms-{name}.json", json.dumps(told, indent=1, allow_nan=False) + "\n")
    except UsageError as error:
        print(f"false_alarms: {error}", file=sys.stderr)
        return USAGE
    print(text)
    return OK


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


if __name__ == "__main__":
    sys.exit(main())
