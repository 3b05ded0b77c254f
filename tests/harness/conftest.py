"""What the tests of the harness share: reproducible properties, and caches that are not the user's."""

import pytest
from hypothesis import settings

settings.register_profile("harness", deadline=None, derandomize=True, database=None)
settings.load_profile("harness")


@pytest.fixture
def store(tmp_path, monkeypatch):
    """An empty simulator cache that the code under test takes for the user's."""
    root = tmp_path / "cache"
    root.mkdir(mode=0o700)
    monkeypatch.setenv("NUMSIM_CACHE_DIR", str(root))
    return root
