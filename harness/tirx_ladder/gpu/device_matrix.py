"""The correctness matrix on the GPU of this machine: each kernel built here, then judged by `device`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from .. import build, bundle
from ..cases import Case, Specialisation
from ..ladder import KernelVersion, Ladder, UsageError
from . import device, runtime
from .device_worker import Finding


def architecture(ladder: Ladder, ordinal: int = 0) -> str:
    """What to compile a ladder for on this GPU: 10.3 takes sm_103a, though the ladder's own is sm_100a.

    Raises UsageError if there is no GPU here, or one of another generation than every version.
    """
    found = runtime.capability(ordinal)
    arch = f"sm_{found[0]}{found[1]}a"
    if not any(fits(version, arch) for version in ladder.versions):
        wanted = " and ".join(sorted({version.arch for version in ladder.versions}))
        raise UsageError(
            f"GPU {ordinal} has compute capability {found[0]}.{found[1]}, and ladder {ladder.spec!r} is for {wanted}: "
            "name another ladder with --ladder, or use another machine"
        )
    return arch


def fits(version: KernelVersion, arch: str) -> bool:
    """Whether a version can be compiled for a GPU's architecture: one of the same major compute capability."""
    return version.arch[:-2] == arch[:-2]


class Bench:
    """Builds and judges specialisations, each once, whatever number of cases asks for it."""

    def __init__(
        self, ladder: Ladder, arch: str, *, torch: bool, ordinal: int = 0, workers: int = device.WORKERS
    ) -> None:
        self._ladder, self._arch, self._torch = ladder, arch, torch
        self._folder = Path(tempfile.mkdtemp(prefix="tirx-ladder-bundles-"))
        self._runner = device.Runner(ordinal=ordinal, workers=workers)
        self._builder = ThreadPoolExecutor(1, thread_name_prefix="build")
        self._kinds: dict[Specialisation, tuple[str, ...]] = {}
        self._built: dict[Specialisation, Future[Future[device.Result] | device.Result]] = {}

    def plan(self, cases: Iterable[Case]) -> None:
        """Queue the kernels of cases, in their order."""
        wanted: dict[Specialisation, list[str]] = {}
        for case in cases:
            wanted.setdefault(case.specialisation, []).append(case.inputs)
        for spec, kinds in wanted.items():
            if spec not in self._built:
                self._kinds[spec] = tuple(dict.fromkeys(kinds))
                self._built[spec] = self._builder.submit(self._build, spec)

    def _build(self, spec: Specialisation) -> Future[device.Result] | device.Result:
        version = self._ladder[spec.version]
        folder = self._folder / f"{len(list(self._folder.iterdir()))}-{spec.id}"
        try:
            bundle.export(build.build(version, spec.problem, sm_count=spec.sm_count, arch=self._arch), folder)
        except build.BuildError as error:
            failed = tuple(Finding(kind, "build", str(error)) for kind in self._kinds[spec])
            return device.Result(spec.id, spec.version, failed, 0.0)
        return self._runner.submit(spec.id, spec.version, folder, self._kinds[spec], torch=self._torch)

    def finding(self, case: Case) -> tuple[Finding, float]:
        """What came of a planned case, and how many seconds its kernel took in all. Waits for it."""
        judged = self._built[case.specialisation].result()
        result = judged.result() if isinstance(judged, Future) else judged
        for found in result.findings:
            if found.inputs == case.inputs:
                return found, result.seconds
        return Finding(case.inputs, "incomplete", "it was not run"), result.seconds

    def close(self) -> None:
        """Drop what is queued."""
        self._builder.shutdown(cancel_futures=True)
        self._runner.close()
        shutil.rmtree(self._folder, ignore_errors=True)
