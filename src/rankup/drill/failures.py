"""The failures that a week brings, and how each is made to happen to a job that trains.

Some happen from outside, by the scheduler's commands: ``strike`` returns why it could not, or "". Others have to happen
inside the job's processes: ``inside`` is what they are told (``runtime/tracing/drill_faults.py``).
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rankup.core import shell
from rankup.core.shell import Completed
from rankup.drill.copied_job import JobScript
from rankup.drill.queue import NodeAction, Queue, QueueJob

GRACE_S = 30  # between SIGTERM and SIGKILL
_SHORTENED_S = 20
_TOGETHER_S = 60  # two jobs at once, at most
_NOTICED_S = 600  # until a scheduler has noticed that a node is lost


@dataclass(frozen=True)
class Settings:
    """``limit``: the time limit of a job that is not struck by it; ``short``: of one that is; both in seconds.
    ``outage``: seconds without a writable folder. ``lose_node``, ``return_node``: an operator's."""

    limit: int
    short: int
    outage: int = 60
    lose_node: NodeAction | None = None
    return_node: NodeAction | None = None
    pretended: bool = False  # the nodes


class Scene(Protocol):
    """The job that is struck."""

    queue: Queue
    settings: Settings
    folder: Path  # the copy in which it runs

    def jobs(self) -> list[QueueJob]:
        """Those that wait or run."""

    def job(self) -> QueueJob | None:
        """None if it has ended."""

    def submit_again(self) -> None: ...

    def wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None: ...


def _no_strike(scene: Scene) -> str:
    return ""


def _same_limit(settings: Settings) -> int:
    return settings.limit


@dataclass(frozen=True)
class Failure:
    """``window``: for how many seconds the training is slowed down, so that the failure meets it. ``limit``: of the
    job. ``why_not``: why it cannot be tried with this job; "" if it can. ``stops``: whether it ends a job that it
    meets. ``stays_slow``: the training must not be let go once it is struck. ``alone``: it is right that such a job
    does not go on by itself."""

    name: str
    what: str
    inside: Callable[[Settings], str] = lambda settings: ""
    strike: Callable[[Scene], str] = _no_strike
    limit: Callable[[Settings], int] = _same_limit
    window: Callable[[Settings], float] = lambda settings: 30.0
    why_not: Callable[[JobScript, Queue, Settings], str] = lambda job, queue, settings: ""
    without_signal: bool = False
    stops: bool = True
    stays_slow: bool = False
    alone: bool = False


def _refused(done: Completed) -> str:
    return "" if done.code == 0 else f"the scheduler refuses it: {(done.err or done.out).strip()[-200:]}"


def _with_job(command: Callable[[Queue, str], Completed]) -> Callable[[Scene], str]:
    def strike(scene: Scene) -> str:
        job = scene.job()
        return "the job had ended before" if job is None else _refused(command(scene.queue, job.id))

    return strike


def _terminate(scene: Scene) -> str:
    job = scene.job()
    if job is None:
        return "the job had ended before"
    refused = _refused(scene.queue.signal(job.id, "TERM"))

    def ended() -> bool:
        now = scene.job()
        return now is None or now.id != job.id or not now.running

    if not refused:
        scene.wait(GRACE_S, ended)
        if not ended():
            scene.queue.signal(job.id, "KILL")
    return refused


def _lose_node(scene: Scene) -> str:
    """By an operator. Without one the job's processes on its last node are killed from inside."""
    lose, bring_back = scene.settings.lose_node, scene.settings.return_node
    if lose is None:
        return ""
    job = scene.job()
    if job is None or not job.nodes:
        return "the job had ended before"
    node = job.nodes[-1]

    def lost() -> bool:
        now = scene.job()
        return now is None or node not in now.nodes

    refused = lose(node)
    if not refused:
        scene.wait(_NOTICED_S, lost)
        refused = "" if lost() else f"the job kept {node}, although it is lost"
    back = bring_back(node) if bring_back is not None else ""
    return refused or back


def by_command(command: str) -> NodeAction | None:
    """An operator's command, in which {node} stands for the node's name."""

    def act(node: str) -> str:
        words = [word.replace("{node}", node) for word in shlex.split(command)]
        return _refused(shell.run(words, timeout=300))

    return act if command else None


def _close_folder(scene: Scene) -> str:
    """All folders and files of the copy lose their owner's right to write, and get it back."""
    modes: dict[Path, int] = {}
    for path in (scene.folder, *scene.folder.rglob("*")):
        with suppress(FileNotFoundError):  # the job goes on meanwhile
            if not path.is_symlink():
                modes[path] = stat.S_IMODE(path.stat().st_mode)
    try:
        for path, mode in modes.items():
            with suppress(FileNotFoundError):
                path.chmod(mode & ~0o222)
        scene.wait(scene.settings.outage)
    finally:
        for path, mode in modes.items():
            with suppress(FileNotFoundError):
                path.chmod(mode)
    return ""


def _second_job(scene: Scene) -> str:
    scene.submit_again()
    scene.wait(_TOGETHER_S, lambda: len(scene.jobs()) < 2)
    return ""


def _needs_signal(job: JobScript, queue: Queue, settings: Settings) -> str:
    if queue.name == "slurm" and job.lead is None:
        return "the script asks for no --signal"
    return ""


def _not_root(job: JobScript, queue: Queue, settings: Settings) -> str:
    return "root writes into a folder that is not writable" if os.geteuid() == 0 else ""


def _real_nodes(job: JobScript, queue: Queue, settings: Settings) -> str:
    return (
        "the nodes are pretended: how a scheduler meets a lost one is not known" if settings.pretended else ""
    )


def _until_limit(settings: Settings) -> float:
    return settings.short + 45.0


FAILURES = (
    Failure(
        "time-limit",
        "its time limit",
        limit=lambda settings: settings.short,
        window=_until_limit,
        why_not=_needs_signal,
        stays_slow=True,
    ),
    Failure(
        "time-limit-unannounced",
        "its time limit, without a signal before",
        strike=_with_job(lambda queue, job: queue.shorten(job, _SHORTENED_S)),
        window=lambda settings: 120.0,
        without_signal=True,
        stays_slow=True,
    ),
    Failure("preempted", "preempted and requeued", strike=_with_job(lambda queue, job: queue.requeue(job))),
    Failure("cancelled", "cancelled", strike=_with_job(lambda queue, job: queue.cancel(job)), alone=True),
    Failure(
        "terminated",
        f"SIGTERM, and SIGKILL {GRACE_S} s later",
        strike=_terminate,
        window=lambda _: GRACE_S + 15.0,
    ),
    Failure("rank-killed", "one rank killed", inside=lambda _: "die {step} {rank}"),
    Failure(
        "node-lost",
        "one node lost",
        inside=lambda settings: "" if settings.lose_node is not None else "node {step} {rank}",
        strike=_lose_node,
        why_not=_real_nodes,
    ),
    Failure(
        "disk-full",
        "the disk full in a save",
        inside=lambda _: "full {step} *",
        window=lambda _: 60.0,
        stops=False,
        stays_slow=True,
    ),
    Failure(
        "read-only",
        "its folder read-only for a while",
        strike=_close_folder,
        window=lambda settings: settings.outage + 10.0,
        why_not=_not_root,
        stops=False,
    ),
    Failure(
        "second-job",
        "a second job in the same folder",
        strike=_second_job,
        window=lambda _: _TOGETHER_S,
        stops=False,
    ),
)
NAMES = tuple(failure.name for failure in FAILURES)
