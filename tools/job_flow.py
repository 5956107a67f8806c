"""Counts how a job description travels through ``rankup run``: stops, returns, names, modules.

    python tools/job_flow.py              this checkout
    python tools/job_flow.py OTHER/src    another one, e.g. of a git worktree

It executes ``rankup run --nproc-per-node 2 script.py`` under ``sys.setprofile`` and counts:

- a *stop*: a function of rankup that is given the job or a part of it, or returns the job. Methods count, property
  reads do not. A job is an instance of ``JOBS``, a mapping of job keys or of tables with such a mapping, or the command
  line's context; a part is an argument with a name in ``PARTS``.
- a *return*: a step from one stop to the next, in the order of their first calls, that enters a file left before.
- a *name*: a parameter or variable of a stop that holds the job or a part of it, or the job's type.

The modules of rankup that ``run``, ``render`` and ``submit`` load are counted in processes of their own.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

# Types that describe a job or a node's share of it, in this version and in those before it.
JOBS = {"JobSpec", "PartialJob", "Resolved", "JobFacts", "Launch", "NodeInfo", "LocalJob", "Hello"}
KEYS = {
    *("command", "name", "folder", "nodes", "gpus_per_node", "nproc_per_node", "launcher", "max_restarts"),
    *(
        "node_rank",
        "rdzv_endpoint",
        "rdzv_timeout",
        "threads",
        "python",
        "runs_root",
        "env",
        "secrets",
        "time",
    ),
}
PARTS = {
    *(
        "command",
        "rank_command",
        "argv",
        "nproc",
        "nproc_per_node",
        "nnodes",
        "nodes",
        "node_rank",
        "launcher",
    ),
    *(
        "endpoint",
        "rdzv_endpoint",
        "rdzv_timeout",
        "threads",
        "max_restarts",
        "runs_root",
        "origin",
        "origins",
    ),
}
_COMMAND = ["run", "--nproc-per-node", "2", "script.py"]


def is_job(value: object) -> bool:
    kind = type(value).__name__
    if kind == "Context":
        return is_job(getattr(value, "params", None))
    if isinstance(value, Mapping) and not any(isinstance(v, inspect.Parameter) for v in value.values()):
        keys = {str(key).partition(".")[0] for key in value}
        tables = (table for table in value.values() if isinstance(table, Mapping))
        return bool(keys) and (keys <= KEYS or len(keys & KEYS) >= 3 or any(map(is_job, tables)))
    return kind in JOBS


def is_part(name: str, value: object) -> bool:
    return name in PARTS and isinstance(value, (str, int, float, tuple, list, Path, Mapping))


class Flow:
    """The profile function; ``stops`` in the order of their first calls."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.stops: dict[CodeType, str] = {}
        self.names: set[str] = set()
        self.properties: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, result: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(self.package):
            return
        if code.co_name.startswith("<") or code in self.properties:
            return
        if event == "return":
            if is_job(result):
                self._stop(code)
            if code in self.stops:
                self._note(frame.f_locals)
            return
        if _is_property(frame):
            self.properties.add(code)
            return
        arguments = inspect.getargs(code)
        names = [*arguments.args, *filter(None, (arguments.varargs, arguments.varkw))]
        given = {name: frame.f_locals[name] for name in names if name in frame.f_locals}
        if any(is_job(value) or is_part(name, value) for name, value in given.items()):
            self._stop(code)
            self._note(given)

    def _stop(self, code: CodeType) -> None:
        self.stops.setdefault(code, str(Path(code.co_filename).relative_to(self.package)))

    def _note(self, values: Mapping[str, object]) -> None:
        for name, value in values.items():
            if is_job(value):
                kind = type(value).__name__
                self.names |= {name, kind} if kind in JOBS else {name}
            elif is_part(name, value):
                self.names.add(name)


def _is_property(frame: FrameType) -> bool:
    this = frame.f_locals.get("self")
    return isinstance(inspect.getattr_static(type(this), frame.f_code.co_name, None), property)


def returns(files: list[str]) -> int:
    """Steps into a file that was left before."""
    left: set[str] = set()
    count = 0
    for before, after in itertools.pairwise(files):
        if before != after:
            left.add(before)
            count += after in left
    return count


def follow(source: Path, *, listed: bool) -> None:
    sys.path.insert(0, str(source))
    os.environ["PYTHONPATH"] = str(source)
    import rankup.cli.commands.run  # noqa: F401  # what runs while modules are imported has no job yet
    from rankup.cli.app import main

    flow = Flow(f"{source / 'rankup'}{os.sep}")
    printed = io.StringIO()
    sys.setprofile(flow)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            main(_COMMAND)
    except SystemExit as end:
        sys.setprofile(None)
        if end.code:
            sys.exit(printed.getvalue())
    finally:
        sys.setprofile(None)
    for code, file in flow.stops.items() if listed else ():
        print(f"  {file}: {getattr(code, 'co_qualname', code.co_name)}")
    if listed:
        print(" ", *sorted(flow.names))
    print(f"stops   {len(flow.stops)}")
    print(f"returns {returns([*flow.stops.values()])}")
    print(f"names   {len(flow.names)}")


def loaded(source: Path, command: list[str]) -> int:
    """How many modules of rankup a command loads."""
    lines = [
        "import atexit, sys",
        "from rankup.cli.app import main",
        "mine = lambda: [m for m in sys.modules if m.partition('.')[0] == 'rankup']",
        "atexit.register(lambda: print(len(mine()), file=sys.__stdout__))",
        "main(sys.argv[1:])",
    ]
    env = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), *command],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    return int(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    here = Path(__file__).resolve().parent.parent / "src"
    parser.add_argument(
        "source", nargs="?", type=Path, default=here, help="a src/ folder; default: this one's"
    )
    parser.add_argument("--list", action="store_true", help="print the stops and the names as well")
    options = parser.parse_args()
    source = options.source.resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("script.py").write_text("print('hello')\n")
        follow(source, listed=options.list)
        print(f"modules {loaded(source, _COMMAND)} (run)")
        for command in (["render", "--site", "slurm"], ["submit", "--site", "slurm", "--dry-run"]):
            print(f"modules {loaded(source, [*command, 'script.py'])} ({command[0]})")
        os.chdir("/")


if __name__ == "__main__":
    main()
