"""NVML of a fake GPU, as much of it as `machine` asks. FAKE_NVML names what is to be otherwise."""

import os
from types import SimpleNamespace


class NVMLError(Exception):
    pass


def _told(what):
    return what in os.environ.get("FAKE_NVML", "")


def nvmlInit():
    if _told("absent"):
        raise NVMLError("Driver Not Loaded")


def nvmlDeviceGetHandleByPciBusId(bus_id):
    assert bus_id == b"0000:01:00.0"
    return "handle"


def nvmlSystemGetDriverVersion():
    return "580.1"


def nvmlDeviceGetName(handle):
    return b"NVIDIA H200"


def nvmlDeviceGetUUID(handle):
    return "GPU-fake"


def nvmlDeviceGetCurrentClocksEventReasons(handle):
    if _told("refused"):
        raise NVMLError("Not Supported")
    return 0x20 if _told("thermal") else 0x4


def nvmlDeviceGetComputeRunningProcesses(handle):
    if _told("refused"):
        raise NVMLError("Not Supported")
    return [SimpleNamespace(pid=1)] if _told("another") else []


def nvmlDeviceGetViolationStatus(handle, policy):
    raise NVMLError("Not Supported")


def nvmlDeviceGetPowerUsage(handle):
    return 650_000


def nvmlDeviceGetEnforcedPowerLimit(handle):
    return 700_000


def nvmlDeviceGetClockInfo(handle, kind):
    return {1: 1635, 2: 3201}[kind]


def nvmlDeviceGetTemperature(handle, sensor):
    return 55
