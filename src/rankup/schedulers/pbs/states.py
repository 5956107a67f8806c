"""PBS's words for a job's state, for why it waits and for how it ended, in ours."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rankup.core.hostlist import compress
from rankup.errors import RankupError
from rankup.schedulers.base import JobState, JobStatus

_STATES = {
    JobState.PENDING: "Q H W T M",  # queued, held, waiting for its time, in transit, moved to another server
    JobState.RUNNING: "R E B S U",  # E: its last processes end; B: an array some of whose tasks run; S, U: suspended
    JobState.DONE: "F X",  # ended, somehow: F a job, X a task of an array
}
_STATE_OF = {letter: state for state, letters in _STATES.items() for letter in letters.split()}

_DELETED = "91"  # the substate of a job that qdel ended
_WAITS_FOR_JOBS = "22"

OUT_OF_TIME = "ran out of its time limit (--time, or the queue's own)"
# An Exit_status below 0 is PBS's own word. From -24 on they are the same for OpenPBS and PBS Pro.
LIMITS: Mapping[int, str] = {
    -24: "used more cores than requested (--cpus-per-task)",
    -25: "used more cores than requested (--cpus-per-task)",
    -26: "used more virtual memory than requested",
    -27: "used more memory than requested (--mem)",
    -28: "used more CPU time than is allowed",
    -29: OUT_OF_TIME,
}
_NOT_STARTED = "PBS could not start it on its nodes"
_TERMINATED = (
    "ended by TERM: cancelled, or out of time (PBS says so too where its script ended well after that)"
)
_HELD = {
    "u": "held by you: `qrls` lets it go",
    "o": "held by an operator: ask the site",
    "s": "held by PBS, maybe after failed starts: ask the site",
}


def job_status(job: str, attributes: Mapping[str, str], limits: Mapping[int, str] = LIMITS) -> JobStatus:
    """What a job's attributes (as ``qstat -f`` names them, ``Resource_List.walltime``) say of it.

    ``limits`` says which exit statuses mean that it exceeded one.
    """
    letter = attributes.get("job_state", "")
    state = _STATE_OF.get(
        letter, JobState.RUNNING
    )  # a letter of the future belongs to a job that qstat still shows
    reason, code = _waiting(letter, attributes) if state is JobState.PENDING else "", None
    if state.ended:
        state, reason, code = _ending(attributes, limits)
    elif letter == "E":
        reason = "its last processes are ending"
    elif letter in ("S", "U"):
        reason = "another job has its nodes"
    return JobStatus(
        job, state, letter, reason, code,
        queue=attributes.get("queue", ""),
        nodes=_nodes(attributes.get("exec_host", "")),
        elapsed=None if state is JobState.PENDING else _seconds(attributes.get("resources_used.walltime", "")),
        name=attributes.get("Job_Name", ""),
        suspended=letter in ("S", "U"),
        ending=letter == "E",
        out_of_time=reason == OUT_OF_TIME,
    )  # fmt: skip


def _waiting(letter: str, attributes: Mapping[str, str]) -> str:
    comment = " ".join(attributes.get("comment", "").split())
    never = re.match(r"Can Never Run:?\s*(.*)", comment)
    if never:
        return f"will wait for ever, since the cluster has not what it asks for: {never[1]}; cancel it and ask for less"
    if letter == "H" and attributes.get("substate") == _WAITS_FOR_JOBS:
        return "waits for the jobs of --after"
    if letter == "H":
        return comment or _HELD.get(attributes.get("Hold_Types", "")[:1], "held")
    if letter == "W":
        return "waits for its start time"
    if letter == "M":
        return "moved to another PBS server, which has to be asked now"
    return re.sub(r"^Not Running:?\s*", "waits: ", comment)


def _ending(attributes: Mapping[str, str], limits: Mapping[int, str]) -> tuple[JobState, str, int | None]:
    """How a job ended: its state, why, and its exit code."""
    status = _number(attributes.get("Exit_status", ""))
    if status is None:
        if attributes.get("stime"):
            return JobState.FAILED, "ended, and PBS does not say how", None
        reason = "never started: deleted before, or a job of --after did not end well"
        return JobState.CANCELLED, reason, None
    if status == 0:
        return JobState.DONE, "", 0
    code = _exit_code(status)
    if status in limits:  # also where somebody has deleted it while PBS was ending it
        return JobState.FAILED, limits[status], None
    if attributes.get("substate") == _DELETED:
        return JobState.CANCELLED, "cancelled (qdel)", code
    if status < 0:
        return JobState.FAILED, f"{_NOT_STARTED} ({status})", None
    if code == 128 + 15:
        return JobState.FAILED, _TERMINATED, code
    return JobState.FAILED, f"ended by signal {code - 128}" if status > 256 and code else "", code


def _exit_code(status: int) -> int | None:
    """256 + N is signal N to PBS: 271 is TERM, and 143 to everybody else."""
    if status < 0:
        return None
    return 128 + status - 256 if status > 256 else status


def _nodes(exec_host: str) -> str:
    """``node1/0*8+node2/0*8`` → ``node[1-2]``."""
    hosts = list(dict.fromkeys(part.partition("/")[0] for part in exec_host.split("+") if part))
    try:
        return compress(hosts)
    except RankupError:  # an odd name must not hide the job
        return ",".join(hosts)


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d{1,9}", text, re.ASCII) else None


def _seconds(text: str) -> int | None:
    """``100:02:03``."""
    found = re.fullmatch(r"(\d{1,9}):(\d\d):(\d\d)", text, re.ASCII)
    return int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3]) if found else None
