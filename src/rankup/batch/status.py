"""The status of a run, from the scheduler and from the run directory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rankup.batch.store import SubmittedRun
from rankup.core.units import duration
from rankup.run.attempts import end_reason
from rankup.run.markers import REQUEUE_CODE, Markers, read_markers
from rankup.schedulers.base import JobState, JobStatus

_WORDS = {"done": JobState.DONE, "failed": JobState.FAILED, "cancelled": JobState.CANCELLED}
# The state of an array is the first of these that one of its tasks has.
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
    """``id`` is the current job, ``reason`` why it waits or how it ended, ``elapsed`` in seconds.

    ``code`` is the job's own exit code, 75 if it requested a requeue that did not happen; None before the end and
    if it is unknown. ``settled`` means that the status is final; without it an ended job may still be requeued.
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
        """For a command that waited for the end: the job's own code; 0, 1 or 143 if it is unknown."""
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
    """``said`` is the scheduler's answer by id. For a job that it has forgotten the run directory decides.

    ``silent``: the scheduler did not answer; a job without an outcome in its directory is then unknown.
    """
    ids = job.ids()
    if not job.tasks():
        whole = _one(ids, said, read_markers(job.run.path), job.spec.max_requeues, silent)
        local = job.scheduler == "run" and not silent and whole.state in (JobState.FAILED, JobState.CANCELLED)
        return replace(whole, reason=end_reason(job.run, whole.traces)) if local else whole
    tasks = {}
    for index, folder in job.tasks().items():
        traces, own = read_markers(folder), job.ids_of_task(index)
        # If the scheduler does not list the task, it lists the array.
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
    # The exit code is the last file that a script writes: after it the scheduler only cleans up.
    cleaning = traces.final and status is not None and status.state is JobState.RUNNING
    elapsed = status.elapsed if status else None
    if status is None or status.state.ended or cleaning:
        state, code, reason = _ended(traces, None if cleaning else status)
        elapsed = elapsed or traces.elapsed
        # `rankup cancel` wrote this outcome: no one else writes one without an exit code.
        told = traces.outcome == "cancelled" and status is not None
        settled = traces.final or (state is JobState.CANCELLED and (told or not traces.attempts))
    else:
        state, code, reason, settled = status.state, None, status.reason, False
        if state is JobState.PENDING and traces.requeues:
            times = f"requeued {traces.requeues} of {max_requeues} times"
            reason = f"{times}, {reason}" if reason else times
    return RunStatus(
        ident, state, reason, code, settled, traces,
        status.queue if status else "", status.nodes if status else "", elapsed,
        bool(status and status.suspended),
    )  # fmt: skip


def _last_known(traces: Markers) -> str:
    """What the run directory tells of a job if the scheduler does not answer."""
    if not traces.attempts:
        return "the scheduler does not answer; no attempt has started yet"
    attempt = f"attempt {traces.attempts}"
    if traces.outcome == "requeue":
        return f"the scheduler does not answer; {attempt} has requested a requeue"
    if traces.exit_code is not None:
        return f"the scheduler does not answer; {attempt} has ended with exit code {traces.exit_code}"
    ago = "" if traces.began is None else f" {duration(max(time.time() - traces.began, 0))} ago"
    where = f" on {traces.host}" if traces.host else ""
    return f"the scheduler does not answer; {attempt} started{ago}{where} and has not written an outcome"


def _that_counts(ids: Sequence[str], said: Mapping[str, JobStatus], traces: Markers) -> JobStatus | None:
    """Of a job and its successors the running one, else the next waiting one, else the last one."""
    known = [said[ident] for ident in ids if ident in said]
    living = [status for status in known if not status.state.ended]
    running = [status for status in living if status.state is JobState.RUNNING]
    if running:
        return running[0]
    # Successors submitted in advance still wait after the run is done, and end at once when they start.
    if living and not (traces.final and living[0].id != ids[0]):
        return living[0]
    return next((status for status in reversed(known) if status.state.ended), None)


def _ended(traces: Markers, status: JobStatus | None) -> tuple[JobState, int | None, str]:
    """(state, code, reason) of a job that has ended, or that the scheduler has forgotten."""
    word, code = traces.outcome, traces.exit_code
    if code is None and status is not None:
        code = status.code
    said = status.reason if status else ""
    if (
        word == "requeue" and status is not None and status.out_of_time
    ):  # before STOP, whose reason is PBS's TERM
        return JobState.FAILED, code, f"{said}; it has saved: `rankup resume` continues it"
    if word == "requeue" and traces.stop in ("user", "terminated"):
        return JobState.CANCELLED, code, "stopped on request after saving: `rankup resume` continues it"
    if word == "requeue":
        why = f"requested a requeue after {traces.requeues} requeues and was not requeued"
        return JobState.FAILED, REQUEUE_CODE, f"{why}: {said}" if said else why
    # An outcome without an exit code: the script was killed before its end, and the scheduler knows more.
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
            "the scheduler no longer lists the job, and it wrote no exit code: it was killed, or its node failed",
        )
    return JobState.FAILED, None, "the scheduler no longer lists the job, and it never started"


def _why(traces: Markers, state: JobState, code: int | None, said: str) -> str:
    """The reason that the script or a rank wrote, then that of the scheduler (``said``); else the exit code."""
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
