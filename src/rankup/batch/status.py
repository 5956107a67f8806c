"""How a run stands: what the scheduler says of its jobs, and what the run directory says, as one answer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rankup.batch.store import SubmittedRun
from rankup.core.units import duration
from rankup.run.attempts import end_reason
from rankup.run.markers import Markers, read_markers
from rankup.run.outcome import REQUEUE_CODE
from rankup.schedulers.base import JobState, JobStatus

_WORDS = {"done": JobState.DONE, "failed": JobState.FAILED, "cancelled": JobState.CANCELLED}
# An array is as far as the first of these that one of its tasks is in.
_ORDER = (
    JobState.RUNNING,
    JobState.PENDING,
    JobState.UNKNOWN,
    JobState.FAILED,
    JobState.CANCELLED,
    JobState.DONE,
)


@dataclass(frozen=True)
class RunStatus:
    """``id`` is the job that counts now, ``reason`` why it waits or how it ended, ``elapsed`` in seconds.

    ``code`` is the job's own exit code, 75 where it asked for a requeue that did not come; None before the end and
    where nobody knows. ``settled`` means that nothing more is to come; without it, an end may be news that is early.
    """

    id: str
    state: JobState
    reason: str = ""
    code: int | None = None
    settled: bool = False
    traces: Markers = field(default_factory=Markers)
    queue: str = ""
    nodes: str = ""
    elapsed: int | None = None
    suspended: bool = False
    tasks: Mapping[int, RunStatus] = field(default_factory=dict)

    @property
    def word(self) -> str:
        """The state in one word for people."""
        return "suspended" if self.suspended else self.state.value

    @property
    def exit_code(self) -> int:
        """For a command that waited for the end: the job's own code, and where nobody knows it 0, 1 or 143."""
        if self.code is None and self.state is JobState.CANCELLED:
            return 143
        return self.code if self.code is not None else int(self.state is not JobState.DONE)

    def as_dict(self) -> dict[str, Any]:
        return {
            "job": self.id,
            "state": self.state.value,
            "reason": self.reason,
            "code": self.code,
            "outcome": self.traces.outcome,
            "attempts": self.traces.attempts,
            "requeues": self.traces.requeues,
            "queue": self.queue,
            "nodes": self.nodes,
            "elapsed": self.elapsed,
            "failure": asdict(self.traces.failure) if self.traces.failure else None,
            "suspended": self.suspended,
        }


def status_of(job: SubmittedRun, said: Mapping[str, JobStatus], *, silent: bool = False) -> RunStatus:
    """``said`` is the scheduler's answer by id; a job that it has forgotten is judged by its run directory.

    ``silent``: it did not answer, so that nobody knows of a job that has left no word of its end.
    """
    ids = job.ids()
    if not job.tasks():
        whole = _one(ids, said, read_markers(job.run.path), job.spec.max_requeues, silent)
        local = job.scheduler == "run" and not silent and whole.state in (JobState.FAILED, JobState.CANCELLED)
        return replace(whole, reason=end_reason(job.run, whole.traces)) if local else whole
    tasks = {}
    for index, folder in job.tasks().items():
        traces, own = read_markers(folder), job.ids_of_task(index)
        # A scheduler that does not list the task says at least how the array is.
        asked = own if traces.final or any(ident in said for ident in own) else ids
        tasks[index] = _one(asked, said, traces, job.spec.max_requeues, silent)
    return tasks[job.task] if job.task is not None else _array(ids, said, tasks)


def _one(
    ids: Sequence[str], said: Mapping[str, JobStatus], traces: Markers, max_requeues: int, silent: bool
) -> RunStatus:
    status = _that_counts(ids, said, traces)
    ident = status.id if status else ids[-1] if ids else ""
    if silent and not traces.final:
        return RunStatus(ident, JobState.UNKNOWN, _last_known(traces), traces=traces)
    # The code is what a script writes last: what the scheduler still does for its job then is cleaning up.
    cleaning = traces.final and status is not None and status.state is JobState.RUNNING
    if status is None or status.state.ended or cleaning:
        state, code, reason = _ended(traces, None if cleaning else status)
        # `rankup cancel` has left its word; one without a code comes from nobody else.
        told = traces.outcome == "cancelled" and status is not None
        settled = traces.final or (state is JobState.CANCELLED and (told or not traces.attempts))
    else:
        state, code, reason, settled = status.state, None, status.reason, False
        if state is JobState.PENDING and traces.requeues:
            times = f"requeued {traces.requeues} of {max_requeues} times"
            reason = f"{times}, {reason}" if reason else times
    return RunStatus(
        ident, state, reason, code, settled, traces,
        status.queue if status else "", status.nodes if status else "", status.elapsed if status else None,
        bool(status and status.suspended),
    )  # fmt: skip


def _last_known(traces: Markers) -> str:
    """What the run directory says of a job of which the scheduler says nothing."""
    if not traces.attempts:
        return "the scheduler does not answer; no attempt had begun so far"
    attempt = f"attempt {traces.attempts}"
    if traces.outcome == "requeue":
        return f"the scheduler does not answer; {attempt} has asked to be requeued"
    if traces.exit_code is not None:
        return f"the scheduler does not answer; {attempt} has ended with exit code {traces.exit_code}"
    ago = "" if traces.began is None else f" {duration(max(time.time() - traces.began, 0))} ago"
    where = f" on {traces.host}" if traces.host else ""
    return f"the scheduler does not answer; {attempt} began{ago}{where}, and has left no word of its end"


def _that_counts(ids: Sequence[str], said: Mapping[str, JobStatus], traces: Markers) -> JobStatus | None:
    """Of a job and its successors: the one that runs, else the next one that waits, else the last one."""
    known = [said[ident] for ident in ids if ident in said]
    living = [status for status in known if not status.state.ended]
    running = [status for status in living if status.state is JobState.RUNNING]
    if running:
        return running[0]
    # Successors that were submitted beforehand wait on when all is done, and end at once when their turn comes.
    if living and not (traces.final and living[0].id != ids[0]):
        return living[0]
    return next((status for status in reversed(known) if status.state.ended), None)


def _ended(traces: Markers, status: JobStatus | None) -> tuple[JobState, int | None, str]:
    """(state, code, reason) of a job that the scheduler calls ended, or has forgotten."""
    word, code = traces.outcome, traces.exit_code
    if code is None and status is not None:
        code = status.code
    said = status.reason if status else ""
    if (
        word == "requeue" and status is not None and status.out_of_time
    ):  # before STOP, whose reason is PBS's TERM
        return JobState.FAILED, code, f"{said}; it had saved: `rankup resume` goes on"
    if word == "requeue" and traces.stop in ("user", "terminated"):
        return JobState.CANCELLED, code, "asked to stop, and saved: `rankup resume` goes on"
    if word == "requeue":
        why = f"asked to be requeued after {traces.requeues} requeues, and was not"
        return JobState.FAILED, REQUEUE_CODE, f"{why}: {said}" if said else why
    # A word without an exit code is a script that was ended before its end: then the scheduler knows better.
    if word in _WORDS and (traces.final or status is None or word == "cancelled"):
        state = _WORDS[word]
        return state, 0 if state is JobState.DONE and code is None else code, _why(traces, state, code, said)
    if status is not None:
        return status.state, code, _why(traces, status.state, code, said)
    if code is not None:
        state = JobState.DONE if code == 0 else JobState.FAILED
        return state, code, _why(traces, state, code, "")
    if traces.attempts:
        return (
            JobState.FAILED,
            None,
            "the scheduler has forgotten it, and it left no exit code: killed, or its node failed",
        )
    return JobState.FAILED, None, "the scheduler has forgotten it, and it never began"


def _why(traces: Markers, state: JobState, code: int | None, said: str) -> str:
    """What the script or a rank says of a failure, then what the scheduler ``said``; without either the exit code."""
    if state is JobState.FAILED and traces.why:
        return f"{traces.why}; {said}" if said else traces.why
    if state is JobState.FAILED and traces.failure is not None:
        return f"{traces.failure}; {said}" if said else str(traces.failure)
    return said or (f"exit code {code}" if state is JobState.FAILED and code else "")


def _array(ids: Sequence[str], said: Mapping[str, JobStatus], tasks: Mapping[int, RunStatus]) -> RunStatus:
    counts = Counter(task.state for task in tasks.values())
    state = next(state for state in _ORDER if counts[state])
    code = next((task.code for task in tasks.values() if task.state.ended and task.code), None)
    if state is JobState.DONE:
        code = 0
    first = next((task for task in tasks.values() if task.state is state and task.reason), None)
    reason = ", ".join(f"{counts[s]} {s.value}" for s in _ORDER if counts[s])
    if first is not None:
        reason += f"; {first.reason}"
    whole = said.get(ids[-1]) if ids else None
    return RunStatus(
        ids[-1] if ids else "", state, reason, code if state.ended else None,
        all(task.settled for task in tasks.values()),
        Markers(
            attempts=sum(task.traces.attempts for task in tasks.values()),
            requeues=sum(task.traces.requeues for task in tasks.values()),
        ),
        whole.queue if whole else "", whole.nodes if whole else "", whole.elapsed if whole else None,
        tasks=tasks,
    )  # fmt: skip
