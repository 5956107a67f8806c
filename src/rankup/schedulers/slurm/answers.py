"""What squeue, sacct and scontrol print about jobs, read into ``JobStatus``. Names may hold any character."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rankup.core.shell import Completed
from rankup.core.units import parse_clock
from rankup.schedulers.base import JobState, JobStatus
from rankup.schedulers.slurm.states import SUSPENDED, reason_of, state_of

# ASCII's own separators: nobody types them into a job's name, as they do with blanks, bars, commas and line breaks.
RECORD, FIELD = "\x1e", "\x1f"
# The name stands last, so that not even a separator in it can shift a field.
SQUEUE_FORMAT = RECORD + FIELD.join(("%i", "%T", "%r", "%P", "%N", "%M", "%j"))
SACCT_FIELDS = "JobID,State,ExitCode,Partition,NodeList,ElapsedRaw,JobName"

_ID = re.compile(r"\d+(?:_\d+|_\[[^\]]*\]?|\+\d+)?")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")
_MOST_TASKS = 4_000_001  # SLURM's own limit of an array's indices
# The last " UserId=" ends a name, which may hold line breaks, or look like fields itself.
_SCONTROL = re.compile(
    r"JobId=(?P<id>\d+) (?:ArrayJobId=(?P<array>\d+) ArrayTaskId=(?P<task>\S+) )?.*?JobName=(?P<name>.*)"
    r" UserId=\S+ GroupId=.*? JobState=(?P<state>\w+) Reason=(?P<reason>\S+) (?P<rest>.*)",
    re.DOTALL,
)


def read_answer(done: Completed) -> list[JobStatus]:
    """The jobs in an answer of any of the three, each by SLURM's id; nothing where there is nothing to read."""
    if RECORD in done.out[:200]:  # behind a line that names the cluster, where one was asked for
        return list(_squeue(done.out))
    if done.out.startswith("JobID" + FIELD):
        return list(_sacct(done.out))
    return list(_scontrol(done.out))


def _squeue(text: str) -> Iterator[JobStatus]:
    for record in text.split(RECORD)[1:]:
        fields = record.split(FIELD, 6)
        if len(fields) != 7 or not _ID.fullmatch(fields[0]):
            continue
        job, native, reason, queue, nodes, elapsed, name = fields
        state = state_of(native)
        seconds = None if state is JobState.PENDING else parse_clock(elapsed)
        reason, name = reason_of(native, reason), name.removesuffix("\n")
        stopped = native in SUSPENDED
        yield from _each_task(
            JobStatus(job, state, native, reason, None, queue, nodes, seconds, name, stopped)
        )


def _sacct(text: str) -> Iterator[JobStatus]:
    for line in text.splitlines()[1:]:
        fields = line.split(FIELD, 6)
        if len(fields) != 7 or not _ID.fullmatch(fields[0]):
            continue  # the rest of a name with a line break
        job, words, code, queue, nodes, elapsed, name = fields
        native = words.split()[0] if words.split() else ""
        state = state_of(native)
        by = re.fullmatch(r"CANCELLED by (\d+)", words)
        reason = f"cancelled by user {by[1]}" if by else reason_of(native, "")
        seconds = int(elapsed) if elapsed.isascii() and elapsed.isdigit() else None
        nodes = "" if nodes == "None assigned" else nodes
        yield from _each_task(
            JobStatus(job, state, native, reason, _exit_code(code, state), queue, nodes, seconds, name)
        )


def _scontrol(text: str) -> Iterator[JobStatus]:
    for record in re.split(r"^(?=JobId=\d+ )", text, flags=re.MULTILINE):
        found = _SCONTROL.match(record)
        if not found:
            continue
        pairs = re.findall(r"(?:^| )(ExitCode|RunTime|Partition|NodeList)=(\S*)", found["rest"])
        values = dict(reversed(pairs))  # the first counts: a comment of the user's may stand behind
        native, task = found["state"], found["task"]
        job = f"{found['array']}_{task if task.isdigit() else f'[{task}]'}" if task else found["id"]
        state = state_of(native)
        nodes = values.get("NodeList", "").replace("(null)", "")
        # Of a job that never started, the controller says that it ran since 1970.
        seconds = parse_clock(values.get("RunTime", "")) if nodes else None
        code = _exit_code(values.get("ExitCode", ""), state)
        reason = reason_of(native, found["reason"].replace("_", " "))
        yield from _each_task(
            JobStatus(
                job, state, native, reason, code, values.get("Partition", ""), nodes, seconds, found["name"],
                native in SUSPENDED,
            )
        )  # fmt: skip


def by_asked_id(jobs: Iterable[JobStatus], ids: Sequence[str]) -> dict[str, JobStatus]:
    """The jobs that ``ids`` mean, with the tasks of arrays among them; all of them where there are no ``ids``.

    An id may name its cluster (``123;east``), which SLURM's answers leave out.
    """
    jobs = list(jobs)
    wanted = ids or list(dict.fromkeys(job.id.partition("_")[0] for job in jobs))
    found: dict[str, JobStatus] = {}
    for asked in wanted:
        plain, semicolon, cluster = asked.partition(";")
        tasks = []
        for job in jobs:
            if job.id == plain:
                found[asked] = _renamed(job, asked)
            elif job.id.startswith(plain + "_"):
                tasks.append(_renamed(job, job.id + semicolon + cluster))
        found |= {task.id: task for task in tasks}
        if tasks and asked not in found:
            found[asked] = _whole(asked, tasks)
    return found


def _whole(job: str, tasks: Sequence[JobStatus]) -> JobStatus:
    """An array: it lives as long as one of its tasks does, and is only as good as the worst of them."""
    counts = Counter(task.state for task in tasks)
    order = (JobState.RUNNING, JobState.PENDING, JobState.FAILED, JobState.CANCELLED, JobState.DONE)
    state = next(state for state in order if counts[state])
    summary = ", ".join(f"{counts[state]} {state.value}" for state in order if counts[state])
    code = next((task.code for task in tasks if task.code), 0 if state is JobState.DONE else None)
    first = next(task for task in tasks if task.state is state)
    return JobStatus(job, state, first.native, summary, code, first.queue, name=first.name)


def _each_task(status: JobStatus) -> Iterator[JobStatus]:
    """``123_[0-3,7%2]``, tasks that share a line while they wait, one by one."""
    job, bracket, rest = status.id.partition("_[")
    if not bracket:
        yield status
        return
    for part in rest.rstrip("]").partition("%")[0].split(","):
        found = _RANGE.fullmatch(part)
        if found:
            first = int(found[1])
            last = min(int(found[2] or first), first + _MOST_TASKS)
            for index in range(first, last + 1, max(int(found[3] or 1), 1)):
                yield _renamed(status, f"{job}_{index}")


def _renamed(status: JobStatus, job: str) -> JobStatus:
    return JobStatus(**{**vars(status), "id": job})


def _exit_code(text: str, state: JobState) -> int | None:
    """``1:0`` → 1, ``0:9`` → 137. A job that failed by no code of its own (``0:0``: time, node) has none."""
    found = re.fullmatch(r"(\d{1,9}):(\d{1,9})", text)
    if found is None or not state.ended:
        return None
    code, signal = int(found[1]), int(found[2])
    if code == 0 and signal == 0 and state is not JobState.DONE:
        return None
    return 128 + signal if signal else code
