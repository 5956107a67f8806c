"""What to change in a job: a row for each thing that a failure may show, in the order in which they are said."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rankup.drill.copied_job import JobScript
from rankup.drill.drill import Outcome
from rankup.findings.finding import Finding, Severity

SAME, ROUNDING, OTHER, NO_END = "the same", "the same within rounding", "other weights", "no end"
_ENDED_WELL = re.compile(r"JobState COMPLETED|Exit_status 0\b")
_FORBIDS = r"--no-requeue|^#PBS\s+-r\s+n"


@dataclass(frozen=True)
class Seen:
    """What a job has made of a failure."""

    job: JobScript
    outcome: Outcome
    result: str
    left: Sequence[str]
    began_anew: bool

    @property
    def name(self) -> str:
        assert self.outcome.failure is not None
        return self.outcome.failure.name

    @property
    def right_alone(self) -> bool:
        """Whether it is right that such a job does not go on by itself."""
        return self.outcome.failure is not None and self.outcome.failure.alone

    @property
    def submitted_again(self) -> bool:
        """Whether it had to be, though it should have gone on by itself."""
        return self.outcome.again > 0 and not self.right_alone

    @property
    def at_limit(self) -> bool:
        return self.name.startswith("time-limit")

    @property
    def forbids_requeue(self) -> bool:
        return self.name in ("preempted", "node-lost") and self.job.line_of(_FORBIDS) is not None

    @property
    def hides_its_end(self) -> bool:
        """Whether the scheduler says of the job in which a rank died that it ended well, though nothing in that job has
        started the ranks again."""
        attempts = [self._job_of(start.attempt) for start in self.outcome.training.starts]
        if self.name not in ("rank-killed", "node-lost") or not any(attempts[:1]):
            return False
        starts = [
            start for start in self.outcome.training.starts if self._job_of(start.attempt) == attempts[0]
        ]
        said = [record for record in self.outcome.records if record.startswith(f"job {attempts[0]}:")]
        return any(map(_ENDED_WELL.search, said)) and (len(starts) == 1 or not starts[-1].ended)

    def _job_of(self, attempt: int) -> str:
        """As the attempt's script has noted it."""
        note = self.outcome.copy.attempts / str(attempt) / "job"
        return note.read_text().split(" ")[0] if note.exists() else ""


@dataclass(frozen=True)
class Advice:
    """``line``: which line of the script it is about."""

    code: str
    seen: Callable[[Seen], bool]
    message: str
    change: str
    line: str = ""


ADVICE = (
    Advice(
        "never-ends",
        lambda seen: seen.outcome.endless,
        "the job starts again and again",
        "count the attempts, and stop after some",
    ),
    Advice(
        "cannot-be-cancelled",
        lambda seen: seen.right_alone and seen.outcome.again == 0 and seen.outcome.training.done,
        "the job went on after it was cancelled",
        "what waits for it by afterany begins then: let the next job look for a file that says so",
    ),
    Advice(
        "begins-anew",
        lambda seen: seen.began_anew,
        "the job begins anew when it is started again",
        "save every few minutes, and let the script find its newest checkpoint by itself. If you start it in another "
        "way, say so: --again COMMAND; for a job of rankup render RANKUP_RUN=DIR sbatch job.sh",
        line=r"^\s*(srun|mpirun|mpiexec|torchrun|python|accelerate|deepspeed)\b",
    ),
    Advice(
        "hides-its-end",
        lambda seen: seen.hides_its_end,
        "the scheduler says that the job ended well, although one of its ranks died",
        "let the script end with the program's exit code: set -o pipefail, no command after it or `exit $code`, and "
        "`wait PID` for each rank in the background. A job that waits for it by afterok begins otherwise",
        line=r"^\s*wait\s*$|;\s*true\b|\|\|\s*(true|:)|^\s*exit\s+0\b|^\s*trap\b",
    ),
    Advice(
        "not-requeued",
        lambda seen: seen.submitted_again and seen.at_limit,
        "the job does not go on by itself after its time limit",
        "#SBATCH --signal=B:USR1@120, and a trap that lets the program save and calls scontrol requeue; on PBS a "
        "timer, and qsub of a successor. rankup render writes both",
        line=r"^#SBATCH\s+(--signal|-t|--time)|^#PBS\s+-l\s.*walltime",
    ),
    Advice(
        "no-requeue",
        lambda seen: seen.submitted_again and seen.forbids_requeue,
        "the script forbids that the job is requeued",
        "#SBATCH --requeue, or #PBS -r y",
        line=_FORBIDS,
    ),
    Advice(
        "not-started-again",
        lambda seen: seen.submitted_again and not seen.at_limit and not seen.forbids_requeue,
        "the job does not go on by itself",
        "let the batch script requeue itself when the program ends with an error after it has trained further; count "
        "the attempts",
    ),
    Advice(
        "other-result",
        lambda seen: seen.result == OTHER or seen.result.startswith("an end"),
        "the job ends with other weights than without the failure",
        "rankup verify names what its resume does not restore",
    ),
    Advice(
        "no-end",
        lambda seen: seen.result == NO_END and not seen.outcome.endless,
        "the job does not get to its end any more, also when it is submitted again",
        "write to a temporary file, fsync it, then os.replace; and let the resume skip a file that is damaged",
    ),
    Advice(
        "left-behind",
        lambda seen: bool(seen.left),
        "left behind: {left}",
        "remove it in a trap on EXIT",
    ),
    Advice(
        "two-at-once",
        lambda seen: seen.name == "second-job" and seen.outcome.training.lost > 0,
        "two jobs in one folder train the same steps",
        "take a lock (flock), or submit with --dependency=singleton, if that was not meant",
        line=r"^#SBATCH\s+(-J|--job-name)|^#PBS\s+-N",
    ),
)


def changes(seen: Seen, *, survived: bool) -> list[Finding]:
    """The rows that apply."""
    severity = Severity.WARNING if survived else Severity.ERROR
    found = []
    for row in ADVICE:
        if row.seen(seen):
            line = seen.job.line_of(row.line) if row.line else None
            place = f"{seen.job.path.name}:{line}" if line else seen.job.path.name
            message = row.message.format(left=", ".join(seen.left[:3]))
            found.append(Finding(row.code, severity, message, place, fix=row.change))
    return found
