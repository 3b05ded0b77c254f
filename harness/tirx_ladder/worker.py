"""The guarded process: reads jobs as JSON lines, answers with stages and outcomes. Started by `pool`."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from typing import Any

from . import ladder, simulate, toolchain

MEMORY = "TIRX_LADDER_MEMORY"
"""Environment variable: bytes of address space that the process and the compilers it starts may each take."""


def main() -> None:
    """Serve jobs until standard input ends."""
    die_with_parent()
    memory = int(os.environ[MEMORY])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a kernel or the simulator prints must not look like an answer

    def send(**answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")

    with toolchain.in_use(toolchain.cache_root()):
        for line in sys.stdin:
            fields = json.loads(line)
            job = simulate.Job(**{**fields, "inputs": tuple(fields["inputs"])})
            try:
                outcome = simulate.run(job, lambda stage: send(stage=stage))
            except ladder.UsageError as error:
                outcome = simulate.Outcome(job.tool, (simulate.Finding("error", str(error)),))
            except ladder.BrokenVersionError as error:
                outcome = simulate.Outcome(job.tool, (simulate.Finding("broken", str(error)),))
            except Exception as error:  # a fault of the simulator, or of the disk: this job's verdict
                outcome = simulate.Outcome(job.tool, (simulate.Finding("crash", simulate._brief(error)),))
            send(outcome=outcome.to_json())


def die_with_parent() -> None:
    """Have the kernel end this process when the one that started it is gone, however that went."""
    pr_set_pdeathsig = 1  # linux/prctl.h
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


if __name__ == "__main__":
    main()
