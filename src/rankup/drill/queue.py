"""What a drill asks of a scheduler."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rankup.core import shell
from rankup.core.shell import Completed
from rankup.errors import RankupError
from rankup.schedulers.submit_environment import clean_environment

FIVE_MINUTES_S = 300

# Has a node lost, or returned; why it could not, or "".
NodeAction = Callable[[str], str]


@dataclass(frozen=True)
class QueueJob:
    """A job that waits or runs. ``state`` is the scheduler's word; ``held``: it waits for somebody, or for ever."""

    id: str
    state: str
    running: bool
    held: bool = False
    nodes: tuple[str, ...] = ()


class Ask(Protocol):
    def __call__(self, tokens: Sequence[str], folder: Path | None = None) -> Completed: ...


class Queue(Protocol):
    """The commands return what the scheduler said, where it may refuse them to this user."""

    name: str
    takes_arguments: bool

    def ask(self, tokens: Sequence[str], folder: Path | None = None) -> Completed:
        """Run a command where the scheduler's commands are."""

    def submit(self, folder: Path, script: Path, arguments: Sequence[str], options: Sequence[str]) -> str:
        """Submit from ``folder``; the job's id. Raises ``RankupError``."""

    def limit(self, seconds: int) -> list[str]:
        """The options that submit a job with this time limit."""

    def jobs(self, folder: Path, ids: Collection[str]) -> list[QueueJob]:
        """This user's jobs that wait or run: ``ids``, and those that were submitted from ``folder``."""

    def requeue(self, job: str) -> Completed: ...

    def cancel(self, job: str) -> Completed: ...

    def signal(self, job: str, name: str) -> Completed:
        """To all processes of the job, the batch shell too."""

    def shorten(self, job: str, seconds: int) -> Completed:
        """A new time limit for a job that runs."""

    def record(self, job: str) -> str:
        """What the scheduler says of a job that has ended, in one line."""

    def on_node(self, node: str) -> list[str]:
        """The options that submit a job of one core to ``node``."""


@dataclass(frozen=True)
class Cluster:
    """Where a drill runs. ``lose_node`` and ``return_node``: what an operator does, if somebody can."""

    queue: Queue
    lose_node: NodeAction | None = None
    return_node: NodeAction | None = None
    pretended: str = ""  # why it is a pretended one; "": it is real
    lost: Callable[[Path], bool] = lambda path: (
        False
    )  # whether a job has written this file, which is gone with it


def ask(tokens: Sequence[str], folder: Path | None = None) -> Completed:
    """A command of the scheduler, in the environment of a login shell."""
    return shell.run(tokens, env=clean_environment(os.environ), cwd=folder, timeout=FIVE_MINUTES_S)


def submitted(ask: Ask, tokens: Sequence[str], folder: Path) -> str:
    """The last line that sbatch or qsub printed: the job's id."""
    done = ask(tokens, folder)
    lines = done.out.split()
    if done.code != 0 or not lines:
        raise RankupError(
            "submit-refused",
            f"{tokens[0]} does not take the job",
            context=(done.err or done.out).strip()[-500:],
            hint="submit the script by hand first; -l and --time of a drill are those of --limit",
            exit_code=1,
        )
    return lines[-1].partition(";")[0]
