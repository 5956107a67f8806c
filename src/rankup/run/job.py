"""What is to be run here, what came of it, and how whoever asked looks on."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rankup.core.rundir import RunDir
from rankup.errors import RankupError


@dataclass(frozen=True)
class LocalJob:
    """A command and the processes to run it in.

    ``command`` is a script with its arguments, ``("-m", "module", …)``, or any executable. ``nproc`` None means one
    process per visible GPU, one without GPUs; ``nnodes`` None means the whole allocation inside a scheduler's job,
    and this machine elsewhere. ``node_rank`` and ``endpoint`` ("HOST:PORT" of node 0) are for nodes started by hand.
    ``threads`` None means cores / processes. ``terminal`` hands a single process our terminal, for a debugger.
    ``run_dir`` is the directory of a run that exists already, and that several nodes share; ``resume`` that of a run
    which this is another attempt of. ``env`` is added to the processes' environment. ``origin`` says where a value
    came from ("flag", "environment"; default otherwise).
    """

    command: tuple[str, ...]
    name: str = ""
    nproc: int | None = None
    max_restarts: int = 0
    nnodes: int | None = None
    node_rank: int | None = None
    endpoint: str | None = None
    rdzv_timeout: float = 300
    runs_root: Path = Path("runs")
    run_dir: Path | None = None
    resume: Path | None = None
    threads: int | None = None
    terminal: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    python: str = sys.executable
    origin: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """How it ended. ``code`` is the exit code of ``rankup run``: 0, 1, 75, or 128 + a signal that was sent to us.

    ``worker_code`` is the code of the rank that failed first (negative: a signal), None where none failed or it is
    not known; ``error`` is what to tell the user where ``code`` is 1; ``seconds`` is wall time, start-up included;
    ``signal`` is the first one that was sent to us, None if there was none. ``lost`` is what the run directory could
    not take (a full disk, or it was deleted), which changes nothing of the rest.
    """

    code: int
    run: RunDir
    worker_code: int | None
    failed_rank: int | None
    seconds: float
    error: RankupError | None = None
    signal: int | None = None
    lost: RankupError | None = None


class View(Protocol):
    """Who looks on while a job runs; called from the thread that called ``execute``."""

    def line(self, rank: int | None, stream: str, text: str) -> None:
        """A line without its end; ``stream`` is "out" or "err".

        Rank None: there is no rank to tell apart. The only process of a job speaks, or rankup, or a launcher.
        """

    def tick(self, run: RunDir) -> None:
        """Called about ten times a second while the processes run."""


class SilentView:
    """A view that shows nothing; the logs keep everything."""

    def line(self, rank: int | None, stream: str, text: str) -> None:
        pass

    def tick(self, run: RunDir) -> None:
        pass
