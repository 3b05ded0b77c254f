"""Sessions: doors into the harness, without logic of their own. Words after -- go to pytest."""

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["correctness", "tests", "lint", "typecheck"]
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = True

PYTHON = "3.12"


@nox.session(python=PYTHON)
def correctness(session: nox.Session) -> None:
    """The correctness matrix on the CPU simulator (--quick, --production, -k v7, -n 2, ...); --device: on the GPU."""
    session.install("-e", ".[sim,gpu]" if "--device" in session.posargs else ".[sim]")
    report = "--correctness-report=reports/correctness.json"
    session.run("pytest", "-q", report, "tests/correctness", *session.posargs)


@nox.session(python=PYTHON)
def tests(session: nox.Session) -> None:
    """Tests of the harness itself."""
    session.install("-e", ".[dev]")
    session.run("pytest", "-q", "tests/harness", *session.posargs)


@nox.session(python=PYTHON)
def faults(session: nox.Session) -> None:
    """Plant every fault of the catalogue and see that it is caught (-k phases for a class)."""
    session.install("-e", ".[sim]")
    session.run("pytest", "-q", "tests/faults", *session.posargs, env={"NUMSIM_GENERATED_OPT_LEVEL": "0"})


@nox.session(python=PYTHON)
def profile(session: nox.Session) -> None:
    """Static profile of the whole ladder, to reports/profile.json and profile.md."""
    session.install("-e", ".[cubin]")
    session.run("tirx-ladder", "profile", "--write", "reports", *session.posargs)


@nox.session(python=PYTHON)
def bench(session: nox.Session) -> None:
    """TFLOPS of a ladder on the GPU here, beside cuBLAS (--ladder hopper_gemm, --m 8192, ...)."""
    session.install("-e", ".[gpu]")
    session.run("tirx-ladder", "bench", *session.posargs)


@nox.session(python=PYTHON)
def gate(session: nox.Session) -> None:
    """Judge the compiled kernels of HEAD against a base: nox -s gate -- --base origin/main."""
    judged = any(word.startswith("--correctness") for word in session.posargs)
    measured = "gpu" if "--measure" in session.posargs else "cubin"
    session.install("-e", f".[{measured}]" if judged else f".[{measured},sim]")
    session.run("tirx-ladder", "gate", *session.posargs)


@nox.session(python=PYTHON)
def report(session: nox.Session) -> None:
    """HTML page and PNGs of what the other sessions found: reports/index.html."""
    session.install("-e", ".[report]")
    session.run("tirx-ladder", "report", *session.posargs)


@nox.session(python=PYTHON)
def changepoints(session: nox.Session) -> None:
    """Where the measured history changed, by apache-otava (another numpy): report before and after."""
    session.install("apache-otava==0.8.0")
    script = "harness/tirx_ladder/pages/changepoints.py"  # by path: it needs nothing of the package
    session.run("python", script, "reports/series.json", "reports/changepoints.json")


@nox.session(python=PYTHON)
def asv(session: nox.Session) -> None:
    """Figures of commits, and their graphs: nox -s asv -- A..B; look at them with .nox/asv/bin/asv preview."""
    session.install("-e", ".[history,measure]")
    session.run("python", "-m", "tirx_ladder.asv_results")  # GPU and driver, as facets
    try:
        session.run("asv", "run", "--show-stderr", *session.posargs)
    finally:  # a version that fails at one commit fails this session, and the graphs are there all the same
        session.run("asv", "publish")


@nox.session(python=PYTHON)
def history(session: nox.Session) -> None:
    """Into asv's graphs what was measured elsewhere: nox -s history -- reports/bench.json."""
    session.install("-e", ".[history]")
    try:
        session.run("python", "-m", "tirx_ladder.asv_results", *session.posargs)
    finally:
        session.run("asv", "publish")


@nox.session(python=PYTHON)
def site(session: nox.Session) -> None:
    """asv's site in headless Chromium. Needs npm, chromium and chromium-driver."""
    session.install("-e", ".[history]", "pytest>=8.4", "selenium>=4.40")
    session.run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", "tests/site", external=True)
    session.run("pytest", "-q", "tests/site", *session.posargs)


@nox.session(python=PYTHON)
def hostbench(session: nox.Session) -> None:
    """Times of the host's steps; --benchmark-save=NAME keeps them, --benchmark-compare=NUMBER compares."""
    session.install("-e", ".[hostbench]")
    session.run("pytest", "-q", "tests/hostbench", *session.posargs)


@nox.session(python=PYTHON)
def lint(session: nox.Session) -> None:
    """Lint and format check."""
    session.install("ruff==0.17.6")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session(python=PYTHON)
def typecheck(session: nox.Session) -> None:
    """mypy --strict on the harness."""
    session.install("mypy==2.4.1", "-e", ".[dev]")
    session.run("mypy")
