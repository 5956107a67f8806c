"""From what was asked for to what will be started: every mistake that can be seen beforehand is found here."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from rankup.core.rundir import default_name
from rankup.errors import RankupError
from rankup.run.endpoint import TO_BE_CHOSEN
from rankup.run.job import LocalJob
from rankup.world.devices import count_gpus, cpu_affinity


@dataclass(frozen=True)
class Resolved:
    """One node's share, with nothing left to decide; ``argv`` is what one rank executes."""

    argv: tuple[str, ...]
    name: str
    nproc: int
    nnodes: int
    node_rank: int
    endpoint: tuple[str, int] | None
    max_restarts: int
    threads: int | None
    gpus: int = 0  # that this node's processes see

    @property
    def launcher(self) -> str:
        return "single" if self.nnodes == self.nproc == 1 and self.max_restarts == 0 else "torchrun"


def resolve(job: LocalJob, env: Mapping[str, str]) -> Resolved:
    """Check ``job`` and fill in what it leaves open."""
    argv = rank_command(job.command, job.python)
    gpus = count_gpus({**env, **job.env})
    nproc = max(1, gpus) if job.nproc is None else job.nproc
    _at_least("process-count", "--nproc-per-node", nproc, 1)
    _at_least("restart-count", "--max-restarts", job.max_restarts, 0)
    nnodes, node_rank, endpoint = _nodes(job)
    resolved = Resolved(
        argv=argv,
        name=job.name or default_name(job.command),
        nproc=nproc,
        nnodes=nnodes,
        node_rank=node_rank,
        endpoint=endpoint,
        max_restarts=job.max_restarts,
        threads=_threads(job, env, nproc),
        gpus=gpus,
    )
    if (
        resolved.launcher == "torchrun"
        and job.python == sys.executable
        and not importlib.util.find_spec("torch")
    ):
        raise RankupError(
            "torch-missing",
            "several processes need torch (torchrun starts them), and this Python has none",
            context=job.python,
            hint="pip install 'rankup[train]', or install rankup into the environment that has torch; "
            "one process runs without",
        )
    return resolved


def rank_command(command: tuple[str, ...], python: str) -> tuple[str, ...]:
    """What one rank executes: Python for ``*.py`` and ``-m``, anything else as it is."""
    if not command:
        raise RankupError(
            "no-script", "there is nothing to run", hint="rankup run [OPTIONS] script.py [ARGUMENTS]"
        )
    first, *rest = command
    if first == "-m":
        return (python, *_module(rest))
    path = Path(first)
    if path.suffix in (".py", ".pyz", ".pyzw") or (path / "__main__.py").is_file():
        if not path.exists():
            raise _not_found(path)
        return (python, first, *rest)
    found = shutil.which(first)
    if found is None:
        if not path.is_file():
            raise _not_found(path)
        raise RankupError(
            "script-not-executable",
            f"{first!r} is neither a Python script nor executable",
            hint=f"chmod +x {first}, or name the program that runs it",
        )
    return (os.path.abspath(found), *rest)  # noqa: PTH100  # resolve() would leave a virtual environment's python


def parse_endpoint(text: str, least: int = 1) -> tuple[str, int]:
    """``HOST:PORT`` or ``[IPV6]:PORT``."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not re.fullmatch(r"\d{1,5}", port) or not least <= int(port) < 65536:
        raise RankupError(
            "bad-endpoint",
            f"{text!r} is not HOST:PORT",
            context="--rdzv-endpoint",
            hint="the address of node 0 and a free port on it, such as 10.0.0.1:29400",
        )
    host = host.strip("[]")
    if host in ("0.0.0.0", "::", "*"):
        raise RankupError(
            "bad-endpoint",
            f"{host!r} is no address that another node can reach",
            context="--rdzv-endpoint",
            hint="give the address of node 0 on the network that the nodes share",
        )
    return host, int(port)


def _threads(job: LocalJob, env: Mapping[str, str], nproc: int) -> int | None:
    """Threads per process, or None where the user has set OMP_NUM_THREADS already."""
    if job.threads is not None:
        _at_least("thread-count", "the number of threads", job.threads, 1)
        return job.threads
    if "OMP_NUM_THREADS" in {**env, **job.env}:
        return None
    return max(1, len(cpu_affinity()) // nproc)


def _nodes(job: LocalJob) -> tuple[int, int, tuple[str, int] | None]:
    nnodes = job.nnodes or 1 if job.nnodes is None else job.nnodes
    _at_least("node-count", "--nnodes", nnodes, 1)
    least = 1 if job.run_dir is None else TO_BE_CHOSEN
    endpoint = parse_endpoint(job.endpoint, least) if job.endpoint is not None else None
    if nnodes == 1 and job.node_rank in (None, 0):
        return 1, 0, None
    if job.nnodes is None or job.node_rank is None or endpoint is None:
        needed = {"--nnodes": job.nnodes, "--node-rank": job.node_rank, "--rdzv-endpoint": job.endpoint}
        missing = [flag for flag, value in needed.items() if value is None]
        raise RankupError(
            "incomplete-nodes",
            f"nodes started by hand need {' and '.join(missing)} as well",
            hint="on each machine: rankup run --nnodes 2 --node-rank 0|1 --rdzv-endpoint HOST:PORT script.py, "
            "HOST being the machine of node rank 0",
        )
    if not 0 <= job.node_rank < nnodes:
        raise RankupError(
            "bad-node-rank",
            f"--node-rank {job.node_rank} is not between 0 and {nnodes - 1}",
            context=f"--nnodes {nnodes}",
        )
    return nnodes, job.node_rank, endpoint


def _at_least(code: str, what: str, value: int, least: int) -> None:
    if value < least:
        raise RankupError(f"bad-{code}", f"{what} is {value}; it has to be {least} or more")


def _module(rest: list[str]) -> list[str]:
    if not rest:
        raise RankupError("no-script", "-m needs the name of a module", hint="rankup run -m package.module")
    top = rest[0].partition(".")[0]
    if top not in sys.builtin_module_names and not importlib.machinery.PathFinder.find_spec(
        top,
        [os.getcwd(), *sys.path],  # noqa: PTH109
    ):
        raise RankupError("module-not-found", f"there is no module {rest[0]!r} here", context=os.getcwd())  # noqa: PTH109
    return ["-m", *rest]


def _not_found(path: Path) -> RankupError:
    folder = path.parent if path.parent.is_dir() else Path()
    close = get_close_matches(path.name, [p.name for p in folder.iterdir() if p.is_file()], n=1)
    return RankupError(
        "script-not-found",
        f"there is no script {str(path)!r}"
        + (f"; did you mean {str(folder / close[0])!r}?" if close else ""),
        context=f"looked in {path.parent.absolute()}",
    )
