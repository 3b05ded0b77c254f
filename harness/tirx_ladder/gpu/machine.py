"""The state of a GPU around a measurement, by NVML, and the marks that it puts on what was measured.

What NVML refuses (some virtual machines do) is recorded as None, "unknown", and never taken for good.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..ladder import UsageError

REASONS = {  # nvml.h, nvmlClocksEventReasons
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks",
}
THROTTLED = ("hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "hardware power brake")
"""Reasons that spoil a measurement. A power cap does not: a large GEMM runs into it on any healthy card."""

_THERMAL_POLICY = 1  # NVML_PERF_POLICY_THERMAL
_SM, _MEMORY = 1, 2  # NVML_CLOCK_SM, NVML_CLOCK_MEM

PEAKS = {  # dense fp16 with fp32 accumulation in TFLOPS, bandwidth in bytes/s
    "NVIDIA H200": (989.4, 4.8e12),  # NVIDIA H200 datasheet, SXM: 1979 with sparsity
    "NVIDIA B200": (2250.0, 8.0e12),  # NVIDIA DGX B200 datasheet: 36 PFLOPS with sparsity and 64 TB/s for eight
}


@dataclass(frozen=True)
class Gpu:
    """Which GPU, and what its datasheet promises (None: not in PEAKS)."""

    name: str
    uuid: str
    driver: str
    sms: int | None
    peak_tflops: float | None
    bandwidth_bytes_s: float | None


@dataclass(frozen=True)
class State:
    """The GPU at one moment; None: NVML does not say.

    reasons:     why its clocks are not higher
    processes:   ids of processes with a compute context, this one included
    thermal_ns:  how long it has been slowed for its temperature, since the driver was loaded
    """

    when: str
    sm_mhz: int | None
    memory_mhz: int | None
    power_w: float | None
    power_limit_w: float | None
    temperature_c: int | None
    reasons: tuple[str, ...] | None
    processes: tuple[int, ...] | None
    thermal_ns: int | None


class Nvml:
    """NVML's view of one GPU, found by its PCI bus id (None: the first)."""

    def __init__(self, bus_id: str | None = None, api: Any = None) -> None:
        """Raises UsageError if NVML is not there or does not know the GPU."""
        try:
            self._api = importlib.import_module("pynvml") if api is None else api
        except ImportError:
            raise UsageError("nvidia-ml-py is not installed: 'pip install tirx-ladder[gpu]'") from None
        try:
            self._api.nvmlInit()
            find = self._api.nvmlDeviceGetHandleByPciBusId
            self._handle = self._api.nvmlDeviceGetHandleByIndex(0) if bus_id is None else find(bus_id.encode())
        except self._api.NVMLError as error:
            raise UsageError(f"NVML does not answer for this GPU: {error}") from None

    def gpu(self, sms: int | None = None) -> Gpu:
        """Which GPU it is."""
        name = _text(self._ask("nvmlDeviceGetName")) or "unknown"
        peak, bandwidth = PEAKS.get(name, (None, None))
        driver = _text(self._try(self._api.nvmlSystemGetDriverVersion)) or "unknown"
        return Gpu(name, _text(self._ask("nvmlDeviceGetUUID")) or "unknown", driver, sms, peak, bandwidth)

    def state(self, when: str, *, processes: bool = True) -> State:
        """The state now; without processes, which are slow to list, it takes well below a millisecond."""
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        reasons = None if bits is None else tuple(name for bit, name in REASONS.items() if bits & bit)
        if bits is not None and bits & ~sum(REASONS):
            reasons = (*(reasons or ()), f"unnamed reason {bits & ~sum(REASONS):#x}")
        running = self._ask("nvmlDeviceGetComputeRunningProcesses") if processes else None
        thermal = self._ask("nvmlDeviceGetViolationStatus", arguments=(_THERMAL_POLICY,))
        power, limit = self._ask("nvmlDeviceGetPowerUsage"), self._ask("nvmlDeviceGetEnforcedPowerLimit")
        return State(
            when,
            self._ask("nvmlDeviceGetClockInfo", arguments=(_SM,)),
            self._ask("nvmlDeviceGetClockInfo", arguments=(_MEMORY,)),
            None if power is None else power / 1000,
            None if limit is None else limit / 1000,
            self._ask("nvmlDeviceGetTemperature", arguments=(0,)),  # NVML_TEMPERATURE_GPU
            reasons,
            None if running is None else tuple(sorted(process.pid for process in running)),
            None if thermal is None else int(thermal.violationTime),
        )

    def _ask(self, *names: str, arguments: tuple[Any, ...] = ()) -> Any:
        """The first of some functions, names of different ages for one thing, that NVML answers; else None."""
        for name in names:
            function = getattr(self._api, name, None)
            if function is not None and (found := self._try(function, self._handle, *arguments)) is not None:
                return found
        return None

    def _try(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._api.NVMLError:  # not supported or not allowed here: unknown
            return None


def _text(value: str | bytes | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


def marks(states: Sequence[State], *, clocks_seen: bool, own: int | None = None) -> tuple[str, ...]:
    """What in a GPU's states spoils what was measured between the first and the last of them. None: nothing.

    clocks_seen: the clock was read in every sample. A throttle would show there, so that NVML's silence
    about its reasons then is no mark; without either nothing vouches for the clock. Its silence about other
    processes always is one. Inside a container NVML may give ids that this process does not know itself
    by: the first state, from before it had a context, must show none, later ones a single one at most.
    """
    own = os.getpid() if own is None else own
    found: dict[str, None] = {}
    for state in states:
        for reason in state.reasons or ():
            if reason in THROTTLED:
                found[f"throttled: {reason}"] = None
    first, last = states[0], states[-1]
    slowed = None if None in (first.thermal_ns, last.thermal_ns) else (last.thermal_ns or 0) - (first.thermal_ns or 0)
    if slowed:
        found[f"throttled: slowed for its temperature for {slowed / 1e6:.0f} ms"] = None
    if not clocks_seen and any(state.reasons is None for state in states):
        found["unknown: NVML does not say whether the GPU was throttled"] = None
    listed = [state for state in states if state.processes is not None]
    if not listed:
        found["unknown: NVML does not say whether another process used the GPU"] = None
    for state in listed:
        others = [pid for pid in state.processes or () if pid != own]
        unknown_self = state is not first and own not in (state.processes or ())
        if len(others) > int(unknown_self):
            found["another process on the GPU"] = None
    return tuple(found)


def capped(states: Sequence[State]) -> bool:
    """Whether the card ran into its power cap."""
    return any("power cap" in (state.reasons or ()) for state in states)
