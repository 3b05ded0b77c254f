"""A fake GPU for tests: a CUDA driver and runtime in host memory, NVML, and bundles whose kernels they understand."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

from tirx_ladder import build, bundle, ladder

HERE = Path(__file__).parent
PROBLEM = ladder.Problem(64, 16, 32)


def compile_into(folder):
    """Compile the fake driver and runtime."""
    script = folder / "cudart.map"
    script.write_text("libcudart.so.13 { global: cuda*; };\n")
    base = ["cc", "-shared", "-fPIC", "-w", "-O1"]
    driver, runtime = folder / "libcuda.so.1", folder / "libcudart.so.13"
    source = HERE / "fake_gpu"
    subprocess.run([*base, "-Wl,-soname,libcuda.so.1", "-o", driver, source / "cuda.c", "-ldl", "-lm"], check=True)
    versions = f"-Wl,--version-script={script}"
    linked = ["-L", folder, "-l:libcuda.so.1"]
    subprocess.run(
        [*base, "-Wl,-soname,libcudart.so.13", versions, "-o", runtime, source / "cudart.c", *linked], check=True
    )


def version(name="s1"):
    """The small version, for the architecture that the fake GPU has."""
    found = ladder.load(str(HERE / "small_ladder.py"))["s1"]
    return dataclasses.replace(found, name=name, arch="sm_90a")


def small_bundle(folder, problem=PROBLEM):
    """A bundle of the small version."""
    bundle.export(build.build(version(), problem), folder)
    return folder


def run(libraries, *words, gpu="", nvml="", module="tirx_ladder.cli"):
    """Run a command in a process that has the fake GPU; gpu and nvml say what goes wrong there."""
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(libraries),
        "LD_PRELOAD": str(libraries / "libcudart.so.13"),  # before the one that cuda-pathfinder would find
        "PYTHONPATH": str(HERE / "fake_gpu"),
        "FAKE_GPU": gpu,
        "FAKE_NVML": nvml,
    }
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, words)], env=environment, capture_output=True, text=True, timeout=120
    )
