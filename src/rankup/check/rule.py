"""A rule, and what it finds. A rule is a file in ``rules/``; its ``RULE`` holds its documentation and its examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Generic, TypeVar

from rankup.check.document import Document, Span
from rankup.check.facts.job.job import Job
from rankup.check.facts.program.program import Program
from rankup.findings.finding import Confidence, Severity

Subject = TypeVar("Subject", Job, Program)

#: One page per rule, written by ``tools/rule_pages.py``.
PAGES = "https://github.com/rankup/rankup/blob/main/docs/reference/rules"


class Safety(str, Enum):
    """Whether a fix can change what a script does that works today."""

    SAFE = "safe"
    UNSAFE = "unsafe"


@dataclass(frozen=True)
class Edit:
    """``span`` of a document is replaced by ``text``; an empty span inserts."""

    span: Span
    text: str
    document: Document | None = None  # that of the match, unless another file has to change


@dataclass(frozen=True)
class Match:
    """A place where a rule fires. What is None is the rule's own."""

    document: Document
    span: Span
    message: str  # one sentence that names what stands there: the numbers, the option, the variable
    edits: tuple[Edit, ...] = ()  # all of them or none
    fix: str | None = None
    severity: Severity | None = None
    confidence: Confidence | None = None
    why: str | None = None


# What a fix names for SLURM, and for PBS.
_OF_PBS = {
    '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)': '$(head -n 1 "$PBS_NODEFILE")',
    "SLURM_JOB_ID % 20000": "${PBS_JOBID%%[!0-9]*} % 20000",
    "$SLURM_JOB_ID": "$PBS_JOBID",
    "$SLURM_NNODES": '$(sort -u "$PBS_NODEFILE" | wc -l)',
    "srun bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID; …'": (
        "mpiexec bash -c 'export RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK; …'"
    ),
    "srun --relative=1 --nodes=1 --ntasks=1 ping": "pbsdsh -n 1 -- ping",
}


def _in_words_of(scheduler: str, fix: str) -> str:
    for slurm, pbs in _OF_PBS.items() if scheduler == "pbs" else ():
        fix = fix.replace(slurm, pbs)
    return fix


@dataclass(frozen=True)
class Rule(Generic[Subject]):
    """A mistake that a reader of job scripts and programs can see.

    ``fires`` and ``silent`` hold at least two examples each: scripts that have the mistake, and near misses that do
    not; all others are files of ``tests/check/examples``. An example is one text (a job script for a rule of jobs, a
    program for a rule of programs), or several files, each after a line ``--- NAME``.
    """

    code: str  # RK101
    name: str  # no-srun
    severity: Severity
    confidence: Confidence
    what: str  # one sentence: what the rule finds
    why: str  # what happens, and where that is known from
    fix: str  # what to do
    find: Callable[[Subject], Iterable[Match]]
    fires: tuple[str, ...]
    silent: tuple[str, ...]
    safety: Safety | None = None  # of its edits; None: it has no edits

    @property
    def page(self) -> str:
        """Where its documentation is."""
        return f"{PAGES}/{self.code}.md"

    def matches(self, subject: Subject) -> list[Match]:
        """What it finds, completed by its own severity, confidence, why and fix."""
        scheduler = getattr(subject, "scheduler", "")
        return [
            replace(
                match,
                severity=match.severity or self.severity,
                confidence=match.confidence or self.confidence,
                why=self.why if match.why is None else match.why,
                fix=_in_words_of(scheduler, self.fix if match.fix is None else match.fix),
            )
            for match in self.find(subject)
        ]
