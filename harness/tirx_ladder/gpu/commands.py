"""The commands that make bundles and run them on a GPU; `cli` adds them to its own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from .. import build, bundle, correctness, ladder
from ..ladder import Problem, UsageError
from . import bench, carry, device, inputs, matrix, measure, runtime

OK, NOT_CLEAN = 0, 1
SIZES = ("m", "n", "k")


def add_to(add: Callable[..., argparse.ArgumentParser], add_ladder: Callable[[argparse.ArgumentParser], None]) -> None:
    """Add the commands: add makes one from its name, function and text."""
    pack = add("bundle", _bundle, "compile versions into bundles, for a GPU machine without a compiler")
    pack.add_argument("words", nargs="+", metavar="VERSION... OUT", help="versions (none with --matrix), then a folder")
    for name in SIZES:
        pack.add_argument(f"--{name}", default=4096, type=int, metavar=name.upper(), help="(%(default)s)")
    pack.add_argument("--sm-count", type=int, help="CTAs of a persistent launch (the SMs of its GPU)")
    pack.add_argument("--matrix", action="store_true", help="the correctness matrix, to a folder or a .tar.xz file")
    pack.add_argument("--production", action="store_true", help="also 4096x4096x4096 in the matrix")
    add_ladder(pack)

    carried = add("runtime", _runtime, "write the folder that a GPU machine needs on PYTHONPATH to run bundles")
    carried.add_argument("out", type=Path)

    judge = add("device", _device, "judge bundles on the GPU here")
    judge.add_argument("bundles", type=Path, help="a matrix (folder or .tar.xz) or one bundle")
    judge.add_argument("--no-torch", action="store_true", help="without torch as a second reference")
    judge.add_argument("--limit", type=float, default=device.LIMIT_S, metavar="SECONDS", help="a bundle (%(default)s)")
    judge.add_argument("--workers", type=int, default=device.WORKERS, help="bundles at a time (%(default)s)")

    timed = add("bench", _bench, "measure TFLOPS on the GPU here, beside cuBLAS")
    timed.add_argument("bundles", nargs="?", type=Path, help="a folder of bundles (the ladder, built here)")
    for name in SIZES:
        timed.add_argument(f"--{name}", default=4096, type=int, metavar=name.upper(), help="(%(default)s)")
    timed.add_argument("--processes", type=int, default=bench.PROCESSES, help="(%(default)s)")
    timed.add_argument("--samples", type=int, default=measure.SAMPLES, help="in each process (%(default)s)")
    timed.add_argument("--inputs", choices=inputs.KINDS, default="normal", help="zeros run faster (%(default)s)")
    timed.add_argument("--timer", choices=("nvbench", "events"), default="nvbench", help="(%(default)s)")
    timed.add_argument("--no-witness", action="store_true", help="without cuBLAS, and so without torch")
    add_ladder(timed)

    for command in (judge, timed):
        command.add_argument("--gpu", type=int, default=0, metavar="N", help="which GPU (%(default)s)")
        command.add_argument("--write", default="reports", metavar="FOLDER", type=Path, help="(%(default)s)")


def _say(text: str) -> None:
    print(text, flush=True)


def _bundle(options: argparse.Namespace) -> int:
    *names, place = options.words
    loaded = ladder.load(options.ladder)
    if options.matrix:
        if names:
            raise UsageError(f"--matrix takes the whole ladder, and {' '.join(names)} was named too")
        index = matrix.export(loaded, Path(place), production=options.production, say=_say)
        failed = [row for row in index.rows if row.failed is not None]
        for row in failed:
            print(f"{row.id}: {row.failed}")
        print(f"{place}: {len(index.rows) - len(failed)} bundles of {len(index.rows)} for {index.arch}")
        return NOT_CLEAN if failed else OK
    if not names:
        raise UsageError("a version is wanted before the folder: 'tirx-ladder bundle v7 OUT', or --matrix")
    problem = Problem(options.m, options.n, options.k)
    for name in names:
        out = Path(place) if len(names) == 1 else Path(place) / name
        try:
            built = build.build(loaded[name], problem, sm_count=options.sm_count)
            bundle.export(built, out)
        except (build.BuildError, ladder.BrokenVersionError) as error:
            print(f"{name}: {error}")
            return NOT_CLEAN
        print(f"{out}: {name} on {problem} for {built.arch}")
    return OK


def _runtime(options: argparse.Namespace) -> int:
    size = carry.assemble(options.out)
    print(
        f"{options.out}: {size / 2**20:.1f} MiB; there: PYTHONPATH={options.out} python -m tirx_ladder.cli device ..."
    )
    return OK


def _device(options: argparse.Namespace) -> int:
    report = device.run(
        options.bundles,
        ordinal=options.gpu,
        torch=not options.no_torch,
        workers=options.workers,
        limit_s=options.limit,
        say=_say,
    )
    device.write(report, options.write / "device.json")
    print("\n".join(device.table(report)))
    return OK if report.clean else NOT_CLEAN


def _bench(options: argparse.Namespace) -> int:
    runtime.driver()  # no GPU here: say so before anything is built
    by_nvbench = options.timer == "nvbench"  # else there is nothing to check events against
    measured = measure.Options(
        samples=options.samples, inputs=options.inputs, timer=options.timer, check=by_nvbench, ordinal=options.gpu
    )
    with bench.workspace() as folder:
        if options.bundles is not None:
            spec, items = bench.from_folder(options.bundles)
        else:
            loaded = ladder.load(options.ladder)
            spec = correctness.name_of(loaded.spec)
            runtime.require(loaded.arch, options.gpu)
            problem = Problem(options.m, options.n, options.k)
            items = bench.from_ladder(loaded, problem, Path(folder), _say)
        report, evidence = bench.run(
            items, ladder=spec, processes=options.processes, witness=not options.no_witness, options=measured, say=_say
        )
    bench.write(report, evidence, options.write)
    Console(width=None if sys.stdout.isatty() else 160).print(bench.table(report, evidence))
    for failure in evidence.failures:
        print(failure)
    return OK if all(row.seconds is not None and not row.marks for row in report.rows) else NOT_CLEAN
