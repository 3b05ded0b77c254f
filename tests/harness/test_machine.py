"""The state of the GPU: what is read, what NVML refuses, and what spoils a measurement."""

import dataclasses
import sys
from pathlib import Path

import pytest

from tirx_ladder.gpu import machine
from tirx_ladder.ladder import UsageError

sys.path.insert(0, str(Path(__file__).parent / "fake_gpu"))
import pynvml as fake  # the test's own, in front of the real one

sys.path.pop(0)
del sys.modules["pynvml"]  # others are to get the real one

ME = 4711
QUIET = machine.State("before", 1980, 3201, 90.0, 700.0, 35, (), (), 0)
BUSY = machine.State("measured", 1635, 3201, 690.0, 700.0, 60, ("power cap",), (ME,), 0)


def states(**changed):
    return [QUIET, dataclasses.replace(BUSY, **changed)]


def marks(*found, clocks_seen=True):
    return machine.marks(found, clocks_seen=clocks_seen, own=ME)


def test_the_state_is_read_in_plain_units(monkeypatch):
    nvml = machine.Nvml("0000:01:00.0", fake)
    state = nvml.state("during")
    assert (state.power_w, state.power_limit_w, state.temperature_c) == (650.0, 700.0, 55)
    assert (state.sm_mhz, state.memory_mhz, state.reasons, state.processes) == (1635, 3201, ("power cap",), ())
    assert state.thermal_ns is None  # refused, and so unknown


def test_the_gpu_has_the_peak_of_its_datasheet():
    found = machine.Nvml("0000:01:00.0", fake).gpu(132)
    assert (found.name, found.uuid, found.driver, found.sms) == ("NVIDIA H200", "GPU-fake", "580.1", 132)
    assert (found.peak_tflops, found.bandwidth_bytes_s) == (989.4, 4.8e12)


def test_an_nvml_that_does_not_start_is_a_usage_error(monkeypatch):
    monkeypatch.setenv("FAKE_NVML", "absent")
    with pytest.raises(UsageError, match="NVML does not answer for this GPU: Driver Not Loaded"):
        machine.Nvml("0000:01:00.0", fake)


def test_a_power_cap_is_no_mark_and_is_told():
    assert marks(*states()) == ()
    assert machine.capped(states())
    assert not machine.capped([QUIET])


@pytest.mark.parametrize("reason", machine.THROTTLED)
def test_a_throttle_at_any_moment_is_a_mark(reason):
    during = dataclasses.replace(QUIET, when="during", reasons=(reason,), processes=None)
    assert marks(QUIET, during, BUSY) == (f"throttled: {reason}",)


def test_time_slowed_for_the_temperature_is_a_mark_though_no_reason_was_seen():
    assert marks(*states(thermal_ns=3_000_000)) == ("throttled: slowed for its temperature for 3 ms",)


def test_another_process_is_a_mark_before_and_after():
    other = ("another process on the GPU",)
    assert marks(dataclasses.replace(QUIET, processes=(1,)), BUSY) == other
    assert marks(*states(processes=(1, ME))) == other
    assert marks(*states(processes=(1, 2))) == other


def test_a_process_that_nvml_knows_by_another_id_is_not_taken_for_another():
    assert marks(*states(processes=(1,))) == ()


def test_what_nvml_does_not_say_is_a_mark_unless_the_clock_was_read():
    silent = [dataclasses.replace(state, reasons=None) for state in states()]
    assert marks(*silent) == ()
    assert marks(*silent, clocks_seen=False) == ("unknown: NVML does not say whether the GPU was throttled",)
    alone = [dataclasses.replace(state, processes=None) for state in states()]
    assert marks(*alone) == ("unknown: NVML does not say whether another process used the GPU",)
