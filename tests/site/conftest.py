"""The site's test takes its commits from the same small repository as the tests of asv."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "harness"))
