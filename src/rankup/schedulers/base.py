"""What every scheduler can be asked: pairs of a command to run and a function that reads its answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import cast

from rankup.core.registry import lookup
from rankup.core.shell import Completed
from rankup.errors import RankupError
from rankup.findings.finding import Finding
from rankup.schedulers import SCHEDULERS
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec


class JobState(str, Enum):
    """A job's state, in one vocabulary for all schedulers."""

    PENDING = "pending"  # waits in the queue: also held, or for another job
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"  # ended with a code that is not 0, or by its node, or by its time limit
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"  # the scheduler did not answer, and the run directory does not say how it ended

    @property
    def ended(self) -> bool:
        return self in (JobState.DONE, JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True)
class JobStatus:
    """What a scheduler says of one job (or one task of an array: then ``id`` is ``123_4`` or ``123[4]``).

    ``native`` is the scheduler's own word for the state, ``reason`` why it waits or how it ended, in its words or in
    better ones. ``code`` is the exit code, 128 + N for a signal, None where unknown. ``elapsed`` in seconds.
    ``suspended``: it has its nodes, and its processes do not run. ``ending``: the scheduler is about to end it.
    ``out_of_time`` says that the scheduler ended it at its time limit.
    """

    id: str
    state: JobState
    native: str = ""
    reason: str = ""
    code: int | None = None
    queue: str = ""
    nodes: str = ""
    elapsed: int | None = None
    name: str = ""
    suspended: bool = False
    ending: bool = False
    out_of_time: bool = False


class Scheduler(ABC):
    """One scheduler. Methods named ``*_command`` return tokens; each ``read_*`` takes what came of them."""

    name: str

    @abstractmethod
    def submit_command(self, script: Path, spec: JobSpec, site: Site) -> list[str]:
        """Submit ``script``, whose directives say everything but dependencies (``spec.after``, ``spec.after_any``)."""

    def successor_command(self, script: Path, spec: JobSpec, site: Site, after: str) -> list[str]:
        """Submit ``script`` once more, to begin when the job ``after`` has ended, however that was.

        Only where jobs cannot ask for it themselves: on PBS with nodes that may not submit.
        """
        raise NotImplementedError(self.name)

    def exclude_options(self, hosts: Sequence[str], spec: JobSpec) -> list[str]:
        """Options of a submit that keep the job off ``hosts``; [] if the scheduler has none, as PBS."""
        return []

    def wait_again_command(self, ident: str, spec: JobSpec) -> list[str]:
        """Have the job ``ident`` wait once more for the jobs of ``spec``; [] if the scheduler forgets no such wait."""
        return []

    @abstractmethod
    def read_submit(self, done: Completed, spec: JobSpec) -> str:
        """The job's id. Raises ``RankupError`` with one sentence that names the flag to change."""

    def directives(self, spec: JobSpec, site: Site, output: str, error: str = "") -> list[str]:
        """What a script says to the scheduler, a directive each; ``output`` and ``error``: where the logs are."""
        return []

    @abstractmethod
    def interactive_command(self, spec: JobSpec, site: Site) -> list[str]:
        """A shell on the same resources: salloc, ``qsub -I``."""

    @abstractmethod
    def status_commands(self, ids: Sequence[str]) -> list[list[str]]:
        """Commands to ask in turn until each of ``ids`` is known; about all jobs of the user if there are none."""

    @abstractmethod
    def read_status(self, done: Completed, ids: Sequence[str]) -> dict[str, JobStatus]:
        """What one of those commands said, by id (of ``ids``, if there are any); ids it does not know are left out.

        The tasks of an array are entries of their own, beside the array's.
        """

    def find_command(self) -> list[str]:
        """List this user's jobs in the queue, each with where its script or log is; [] if that cannot be asked."""
        return []

    def read_found(self, done: Completed, folder: Path) -> list[str]:
        """The ids of the jobs whose script or log is in ``folder``."""
        raise NotImplementedError(self.name)

    @abstractmethod
    def cancel_command(self, ids: Sequence[str]) -> list[str]: ...

    @abstractmethod
    def read_cancel(self, done: Completed) -> None:
        """Returns where the jobs are cancelled or had ended already; raises ``RankupError`` otherwise."""

    def limits_command(self, spec: JobSpec, site: Site, env: Mapping[str, str]) -> list[str]:
        """Ask what the job's queue grants at most; [] if that would not tell for this job. ``env`` is the caller's."""
        return []

    def read_limits(
        self, done: Completed, spec: JobSpec, site: Site, env: Mapping[str, str]
    ) -> list[Finding]:
        """What the job requests and no node or queue ever grants; nothing if the answer does not tell."""
        return []

    def range_command(self, spec: JobSpec) -> list[str]:
        """Ask what the queue grants, after it has refused the job (``over-limit``); [] if its refusal says that."""
        return []

    def out_of_range(self, done: Completed, spec: JobSpec) -> list[str]:
        """A sentence for each request that the queue does not grant."""
        return []

    def start_command(self, spec: JobSpec, site: Site) -> list[str]:
        """Ask when a job like ``spec`` would start. Nothing is submitted. Raises ``RankupError`` if it cannot tell."""
        raise RankupError("no-queue", f"{self.name} has no queue: a job starts at once")

    def read_start(self, done: Completed, spec: JobSpec) -> float:
        """When it would start, in epoch seconds. Raises ``RankupError`` if that was not said."""
        raise NotImplementedError(self.name)

    @abstractmethod
    def clean(self, env: Mapping[str, str]) -> dict[str, str]:
        """``env`` for a submit: without what belongs to the job or the ranks that we may be inside of."""


def scheduler_named(name: str) -> Scheduler:
    return cast(type[Scheduler], lookup("scheduler", name, SCHEDULERS))()
