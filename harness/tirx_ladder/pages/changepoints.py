"""Change points of a history, by apache-otava: python changepoints.py reports/series.json reports/changepoints.json.

A program of its own that imports nothing of tirx_ladder: Otava wants numpy 2.2, the harness a later one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SCHEMA = 1


def change_points(values: list[float]) -> list[int]:
    """Indices at which a series begins to differ from what was before (E-divisive, t-test, p < 0.001)."""
    from otava.series import AnalysisOptions, Metric, Series

    series = Series("", None, list(range(len(values))), {"tflops": Metric()}, {"tflops": values}, {})
    return [int(point.index) for point in series.analyze(AnalysisOptions()).change_points["tflops"]]


def find(data: dict[str, Any]) -> dict[str, Any]:
    """The change points of each series: its name and the commits where it changed."""
    found = []
    for series in data["series"]:
        known = [(commit, v) for commit, v in zip(series["commits"], series["tflops"], strict=True) if v is not None]
        indices = change_points([value for _, value in known]) if len(known) > 2 else []
        found.append({"name": series["name"], "commits": [known[i][0] for i in indices], "judged": len(known)})
    return {"schema": SCHEMA, "series": found}


def main() -> int:
    """Read the history that `tirx-ladder report` wrote, and write the change points for the next report."""
    if len(sys.argv) != 3 or not Path(sys.argv[1]).is_file():
        print("changepoints: SERIES.json and OUT.json are wanted; 'nox -s report' writes the first", file=sys.stderr)
        return 2
    found = find(json.loads(Path(sys.argv[1]).read_text()))
    Path(sys.argv[2]).write_text(json.dumps(found, indent=1) + "\n")
    print(f"{sum(len(series['commits']) for series in found['series'])} change points in {len(found['series'])} series")
    return 0


if __name__ == "__main__":
    sys.exit(main())
