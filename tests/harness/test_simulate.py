"""What decides whether two checkouts share built kernels."""

import pytest

from tirx_ladder import simulate

RECORD = """tvm/base.py,sha256=aaa,10
tvm/lib/libtvm.so,sha256=bbb,20
../../../bin/tvm-config,sha256=ccc,30
tvm-1.0.dist-info/INSTALLER,sha256=ddd,4
tvm-1.0.dist-info/RECORD,,
"""


@pytest.fixture
def record_hash(monkeypatch):
    def of(text):
        monkeypatch.setattr(simulate, "distribution", lambda name: type("D", (), {"read_text": lambda _, file: text})())
        return simulate._record_hash("tvm")

    return of


@pytest.mark.parametrize("installed", ["sha256=ccc", "sha256=ddd"])
def test_what_an_installer_writes_by_itself_does_not_keep_checkouts_from_sharing(record_hash, installed):
    assert record_hash(RECORD) == record_hash(RECORD.replace(installed, "sha256=other"))


@pytest.mark.parametrize("shipped", ["sha256=aaa", "sha256=bbb"])
def test_another_file_of_the_wheel_is_another_compiler(record_hash, shipped):
    assert record_hash(RECORD) != record_hash(RECORD.replace(shipped, "sha256=other"))


def test_a_wheel_without_a_record_shares_with_no_one(record_hash):
    assert record_hash("") != record_hash("")
