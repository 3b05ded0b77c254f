"""The command line: list a ladder's versions, check one case, profile them, look after the simulator's cache."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import cases, check, commits, gate, git, ladder, packed, pages, pool, profile, results, toolchain
from .faults.catalogue import FAULTS
from .gpu import commands as gpu_cli
from .gpu import runtime
from .pages import history
from .profile import tables as profile_tables

OK, NOT_CLEAN, USAGE = 0, 1, 2
"""Exit codes, fixed: everything clean; something was found; what was asked for cannot be done as asked."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except ladder.UsageError as error:
        print(f"tirx-ladder: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("tirx-ladder: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tirx-ladder", description="Judge the versions of a GPU kernel ladder.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: object, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        return command

    def add_ladder(command: argparse.ArgumentParser) -> None:
        command.add_argument(
            "--ladder", default=ladder.DEFAULT_LADDER, help="package, file or folder of the ladder (%(default)s)"
        )

    add_ladder(add("list", _list, "list the versions: tile, stages, cluster and what each adds"))

    one = add("check", _check, "judge one version on one problem with all tools")
    one.add_argument("version")
    for name in ("m", "n", "k"):
        one.add_argument(f"--{name}", required=True, type=_integer, metavar=name.upper())
    one.add_argument("--sm-count", type=_integer, help="CTAs of a persistent launch (the SMs of its GPU)")
    one.add_argument("--inputs", choices=cases.INPUTS, action="append", help="kind of input (all)")
    one.add_argument("--clusters", type=_integers, help="run only these clusters of the launch, without the checkers")
    add_ladder(one)

    figures = add("profile", _profile, "static figures of the compiled versions; needs no GPU and no CUDA toolkit")
    figures.add_argument("version", nargs="?", help="one version, in detail (all, as a table)")
    for name in ("m", "n", "k"):
        figures.add_argument(f"--{name}", default=4096, type=_integer, metavar=name.upper(), help="(%(default)s)")
    figures.add_argument("--arch", help="GPU architecture (the ladder's own)")
    figures.add_argument("--write", metavar="FOLDER", type=Path, help="also write profile.json and profile.md there")
    add_ladder(figures)

    merge = add("gate", _gate, "compare the compiled kernels of two commits; the exit code is the verdict")
    merge.add_argument("--base", required=True, metavar="REV", help="what to compare with, such as origin/main")
    merge.add_argument("--head", default="HEAD", metavar="REV", help="what to judge (%(default)s)")
    merge.add_argument("--kernels", default="kernels/blackwell_gemm", help="the ladder's place in it (%(default)s)")
    merge.add_argument(
        "--problem", action="append", type=_problem, metavar="MxNxK", help="may be given again (4096x4096x4096)"
    )
    merge.add_argument("--arch", help="GPU architecture (the ladder's own)")
    merge.add_argument(
        "--correctness",
        metavar="FILE",
        type=Path,
        help="what the correctness session wrote at head (the matrix of the changed versions runs here)",
    )
    how = merge.add_mutually_exclusive_group()
    how.add_argument("--measure", action="store_true", help="also time changed code on the GPU here")
    how.add_argument("--pack", metavar="FOLDER", type=Path, help="write what a GPU machine needs to measure and judge")
    merge.add_argument("--write", default="reports", metavar="FOLDER", type=Path, help="for the report (%(default)s)")

    timed = add("gate-measure", _gate_measure, "time and judge a packed gate on the GPU here; exit codes as gate's")
    timed.add_argument("packed", type=Path, help="the folder of gate --pack")
    timed.add_argument("--write", default="reports", metavar="FOLDER", type=Path, help="for the report (%(default)s)")

    told = add("report", _make_report, "write index.html and PNGs: the ladder, a roofline, the history, the last gate")
    told.add_argument("--bench", action="append", type=Path, metavar="FILE", help="what was measured (its bench.json)")
    told.add_argument("--write", default="reports", metavar="FOLDER", type=Path, help="for the page (%(default)s)")

    add("faults", _faults, "list the catalogue of planted faults: name, class, versions, who must catch it")

    gpu_cli.add_to(add, add_ladder)

    store = add("cache", _cache, "show the simulator's cache, or make it smaller")
    act = store.add_mutually_exclusive_group()
    act.add_argument("--prune", metavar="SIZE", type=_size, help="drop least recently used kernels down to SIZE (2GiB)")
    act.add_argument("--clear", action="store_true", help="remove everything, engines included")
    return parser


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer") from None


def _problem(text: str) -> ladder.Problem:
    match = re.fullmatch(r"(\d+)x(\d+)x(\d+)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a problem: M, N and K are wanted, like 4096x4096x8192")
    try:
        return ladder.Problem(*map(int, match.groups()))
    except ladder.UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _integers(text: str) -> tuple[int, ...]:
    return tuple(_integer(part) for part in text.split(","))


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: a number with KiB, MiB or GiB is wanted, like 2GiB")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def _bytes(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def _list(options: argparse.Namespace) -> int:
    loaded = ladder.load(options.ladder)
    table = Table(box=None, pad_edge=False)
    for heading in ("version", "tile", "stages", "cluster", "launch", "adds"):
        table.add_column(heading, no_wrap=heading != "adds")
    for version in loaded.versions:
        table.add_row(
            version.name,
            f"{version.tile[0]}x{version.tile[1]}x{version.blk_k}",
            str(version.pipe_depth),
            str(version.cluster),
            "persistent" if version.persistent else "one tile each",
            version.adds,
        )
    for name, reason in loaded.broken.items():
        table.add_row(name, "-", "-", "-", "-", reason)
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    return NOT_CLEAN if loaded.broken else OK


def _check(options: argparse.Namespace) -> int:
    problem = ladder.Problem(options.m, options.n, options.k)
    try:
        version = ladder.load(options.ladder)[options.version]
    except ladder.BrokenVersionError as error:
        print(f"{options.version}: {error}")
        return NOT_CLEAN
    sm_count = options.sm_count
    if sm_count is None:
        sm_count = version.default_sm_count
    version.check(problem, sm_count)
    launched = len(version.schedule(problem, sm_count))
    if options.clusters and not all(0 <= cluster < launched for cluster in options.clusters):
        raise ladder.UsageError(
            f"--clusters {','.join(map(str, options.clusters))}: the launch has clusters 0 to {launched - 1}"
        )
    toolchain.require()
    launch = sm_count if version.persistent else None
    spec = cases.Specialisation(version.name, problem, launch, frozenset(), options.clusters)
    chosen = [cases.Case(spec, kind) for kind in options.inputs or cases.INPUTS]
    workers = pool.Pool()
    judge = check.Judge(options.ladder, workers)
    try:
        judge.plan(chosen)
        _watch(judge, chosen[0])
        verdicts = [judge.verdict(case) for case in chosen]
    finally:
        workers.close()
    for verdict in verdicts:
        if not verdict.clean:
            print(verdict.report(options.ladder))
    clean = sum(verdict.clean for verdict in verdicts)
    tools = ", ".join(verdicts[0].asked)
    print(f"{spec.id}: {clean} of {len(verdicts)} kinds of input clean ({tools})")
    return OK if clean == len(verdicts) else NOT_CLEAN


def _watch(judge: check.Judge, case: cases.Case) -> None:
    """Say what the workers do until the jobs of a case are done; on standard error, where it is in no one's way."""
    console = Console(stderr=True)
    waiting = set(judge.futures(case).values())
    with console.status("starting") as status:
        while waiting:
            doing = [pool.describe(activity) for activity in judge.pool.activities()]
            status.update("; ".join(doing) or "starting")
            if not console.is_terminal and doing:
                console.print(*doing, sep="; ", highlight=False)
            waiting = pool.pending(waiting, timeout_s=1.0 if console.is_terminal else 15.0)


def _profile(options: argparse.Namespace) -> int:
    console = Console(width=None if sys.stdout.isatty() else 200)
    problem = ladder.Problem(options.m, options.n, options.k)
    loaded = ladder.load(options.ladder)
    if options.version is not None:
        chosen = () if options.version in loaded.broken else (loaded[options.version],)
        broken = {name: why for name, why in loaded.broken.items() if name == options.version}
        loaded = replace(loaded, versions=chosen, broken=broken)
    with Console(stderr=True).status("starting") as status:
        found = profile.profile_ladder(loaded, problem, arch=options.arch, say=status.update)
    if options.version is not None and found.profiles:
        console.print(profile_tables.details(found.profiles[0]))
    elif found.profiles:
        console.print(profile_tables.table(found))
    for name, reason in found.failed.items():
        print(f"{name}: {reason}")
    if options.write is not None:
        options.write.mkdir(parents=True, exist_ok=True)
        profile.write(found, options.write / "profile.json")
        (options.write / "profile.md").write_text(profile_tables.markdown(found))
    return NOT_CLEAN if found.failed else OK


def _gate(options: argparse.Namespace) -> int:
    here = Path.cwd()
    base, head = git.commit_of(here, options.base), git.commit_of(here, options.head)
    if git.git(here, "status", "--porcelain", "--", options.kernels).strip() and options.head == "HEAD":
        print(f"tirx-ladder: uncommitted changes in {options.kernels} are not judged: commit them", file=sys.stderr)
    problems = tuple(dict.fromkeys(options.problem or [ladder.Problem(4096, 4096, 4096)]))
    asked = commits.Question(
        here, base, head, options.kernels, problems, options.arch, options.correctness, options.write
    )
    with _saying() as say:
        if options.pack is not None:
            pairs = commits.pack(asked, options.pack, say)
        elif options.measure:
            runtime.driver()  # no GPU here: say so before anything is built
            with tempfile.TemporaryDirectory() as folder:
                commits.pack(asked, Path(folder) / "packed", say)
                report = packed.run(Path(folder) / "packed", say=say)
                for side in packed.SIDES:
                    history.keep(results.read(Path(folder) / "packed" / f"measured-{side}.json"), options.write)
        else:
            report = commits.judge(asked, say)
    if options.pack is not None:
        print(f"{options.pack}: {len(pairs)} pairs of bundles; not judged yet: tirx-ladder gate-measure {options.pack}")
        return OK
    return _report(
        report, options.write, history.load(options.write, Path(options.kernels).stem, git.first_parents(here, head))
    )


def _gate_measure(options: argparse.Namespace) -> int:
    return _report(packed.run(options.packed), options.write, history.History((), ()))


def _report(report: gate.GateReport, folder: Path, known: history.History) -> int:
    """Show a gate's report, write it, and give its exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    gate.show(report, Console(width=None if sys.stdout.isatty() else 160))
    (folder / "gate.md").write_text(gate.markdown(report))
    (folder / "gate.json").write_text(gate.to_json(report))
    (folder / "gate.html").write_text(pages.gate_page(report, known))
    return report.exit_code


@contextmanager
def _saying() -> Iterator[Callable[[str], None]]:
    """Shows what is being done, on standard error: in place on a terminal, line by line in a log."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: print(text, file=sys.stderr, flush=True)
        return
    with console.status("starting") as status:
        yield lambda text: status.update(Text(text))


def _make_report(options: argparse.Namespace) -> int:
    from .pages import index as report  # matplotlib is for this command alone

    benches = options.bench or [path for path in (options.write / "bench.json",) if path.is_file()]
    print(report.write(options.write, Path.cwd(), benches))
    return OK


def _faults(options: argparse.Namespace) -> int:
    table = Table(box=None, pad_edge=False)
    for heading in ("class", "fault", "versions", "caught by", "what was done wrong"):
        table.add_column(heading, no_wrap=heading != "what was done wrong")
    for fault in FAULTS:
        table.add_row(fault.kind, fault.name, " ".join(fault.versions), " ".join(fault.caught), fault.did)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    return OK


def _cache(options: argparse.Namespace) -> int:
    root = toolchain.cache_root()
    if options.clear:
        toolchain.clear(root)
    elif options.prune is not None:
        toolchain.prune(root, options.prune)
    use = toolchain.cache_use(root)
    print(f"simulator cache {root}: {_bytes(use.total)}")
    print(f"  engines {_bytes(use.engines)}; {use.entries} entries of kernels {_bytes(use.kernels)}")
    return OK


if __name__ == "__main__":
    sys.exit(main())
