"""From how the processes ended to a ``Result``, an outcome on disk, and the error to show."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rankup.core.files import write_atomic
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.run.allocation import Allocation
from rankup.run.attempts import Attempt
from rankup.run.failure import Logs, last_exception, last_lines, reason
from rankup.run.interrupts import Interrupts
from rankup.run.markers import REQUEUE_CODE
from rankup.run.node import NodeOutcome

# Where in gloo's source a connection was closed, and its advice.
_GLOO = re.compile(r"\[\S+\.cc:\d+\] |\. This is typically caused by .*")
_WRITTEN_FOR_SRUN = re.compile(r"KeyError: '(SLURM_\w+|GPUS_PER_NODE)'")
_CODES = {"done": 0, "requeue": REQUEUE_CODE, "failed": 1, "cancelled": 143}


@dataclass(frozen=True)
class Result:
    """How it ended. ``code`` is the exit code of ``rankup run``: 0, 1, 75, or 128 + a signal that was sent to us.

    ``worker_code`` is the code of the rank that failed first (negative: a signal), None where none failed or it is
    not known; ``error`` is what to tell the user where ``code`` is 1; ``seconds`` is wall time, start-up included;
    ``interrupts`` are the signals that were sent to us, also while the run's end was written. ``lost`` is what the run
    directory could not take (a full disk, or it was deleted), which changes nothing of the rest.
    """

    code: int
    run: RunDir
    worker_code: int | None
    failed_rank: int | None
    seconds: float
    error: RankupError | None = None
    interrupts: Interrupts = field(default_factory=Interrupts)
    lost: RankupError | None = None

    @property
    def signal(self) -> int | None:
        """The first one of them: what was to follow on this run must not."""
        return self.interrupts.first

    def details(self, word: str) -> dict[str, Any]:
        """What ``outcome.json`` says of it beside the ``word`` in ``outcome``."""
        ended = {"outcome": word, "exit_code": self.code, "seconds": round(self.seconds, 3)}
        worker = {"worker_code": self.worker_code, "failed_rank": self.failed_rank}
        return {**ended, **worker, "message": self.error.message if self.error else ""}


def of_node(attempt: Attempt, ended: NodeOutcome) -> Result:
    """How this node ended. Node 0 writes the run's outcome; an agent of an allocation leaves that to its head."""
    spec, run = attempt.spec, attempt.run
    failure, error = ended.failure, None
    word, code = _word_and_code(attempt, ended.code)
    if code == 1:
        error = _worker_error(attempt, ended) if failure or ended.code == 0 else _launcher_error(ended)
    worker, rank = (failure.code, failure.rank) if failure and code else (None, None)
    result = Result(code, run, worker, rank, attempt.seconds, error, attempt.interrupts)
    details = {**result.details(word), "restarts": ended.restarts, "nproc_per_node": spec.nproc_per_node}
    details["nnodes"] = spec.nodes
    lost = _lost(run, ended.logs) if ended.logs.spare else None
    if attempt.agent:
        # 75 would be a failed task to srun, which then kills the nodes that still write.
        code = 0 if code == REQUEUE_CODE else code
        reported = {**details, "time": failure.time if failure else None}
        path = run.path / f"node-{spec.node_rank}.json"
        try:
            write_atomic(path, json.dumps(reported) + "\n", mode=0o600)
        except OSError as trouble:
            lost = _lost(run, ended.logs, trouble)
    elif spec.node_rank == 0:
        lost = write_outcome(run, word, details, ended.logs) or lost
    return replace(result, code=code, lost=lost)


def of_agents(attempt: Attempt, allocation: Allocation, agents_code: int) -> Result:
    """How an allocation ended, from what its nodes reported in the run directory."""
    run = attempt.run
    word, code = _word_and_code(attempt, agents_code)
    # A report that is not here (a file system that lags, a killed agent) does not make a node succeed.
    reports = [json.loads(path.read_text()) for path in run.path.glob("node-*.json")]
    failed = sorted((r for r in reports if r["failed_rank"] is not None), key=lambda r: r["time"])
    first: Mapping[str, Any] = failed[0] if failed else {}
    error = None
    if code == 1:
        error = RankupError(
            "worker-failed" if first else "agents-failed",
            first.get("message") or f"the run on {len(allocation.hosts)} nodes ended with code {agents_code}",
            context=f"logs in {run.logs}",
            exit_code=1,
        )
    rank, worker = first.get("failed_rank"), first.get("worker_code")
    result = Result(code, run, worker, rank, attempt.seconds, error, attempt.interrupts)
    details = {**result.details(word), "nnodes": len(allocation.hosts), "hosts": allocation.hosts}
    return replace(result, lost=write_outcome(run, word, details))


def write_outcome(
    run: RunDir | None, word: str, details: Mapping[str, Any], logs: Logs | None = None
) -> RankupError | None:
    """Beside what a worker wrote already: its details stay where ours say nothing. No run yet: nothing.

    Returns what keeps it from being written.
    """
    if run is None:
        return None
    try:
        said = json.loads((run.path / "outcome.json").read_text())
    except (OSError, ValueError):
        said = {}
    try:
        run.write_outcome(word, {**(said if isinstance(said, dict) else {}), **details})
        write_atomic(run.path / "exit_code", f"{details['exit_code']}\n", mode=0o600)
    except OSError as trouble:
        return _lost(run, logs, trouble)
    return None


def _lost(run: RunDir, logs: Logs | None, trouble: OSError | None = None) -> RankupError:
    gone = not run.path.is_dir()
    what = "was deleted while the run went on" if gone else "could not take all that was written to it"
    why = f": {trouble.strerror}" if trouble is not None and not gone else ""
    spare = logs.spare if logs is not None else None
    return RankupError(
        "run-directory-lost",
        f"the run directory {what}{why}; rankup let the script go on",
        context=str(run.path),
        hint=f"what it printed since then is in {spare}"
        if spare
        else "make room there, or use another --runs-root",
        exit_code=1,
    )


def _word_and_code(attempt: Attempt, code: int) -> tuple[str, int]:
    """A worker's own word holds where all ended well; a signal to us is what ended the others."""
    run, signum = attempt.run, attempt.interrupts.first
    if code == 0:
        word = run.outcome() or "done"
        word = word if word in _CODES else "done"
        return word, _CODES[word]
    if signum == signal.SIGTERM and run.outcome() == "requeue":
        return "requeue", REQUEUE_CODE  # the ranks took it for a request to stop, and saved
    if signum is not None:
        cancelled = (run.path / "CANCELLED").exists()
        return "cancelled" if cancelled else "failed", 128 + signum
    return "failed", 1


def _worker_error(attempt: Attempt, ended: NodeOutcome) -> RankupError:
    spec, run, failure = attempt.spec, attempt.run, ended.failure
    if failure is None:
        return RankupError(
            "run-failed",
            "a worker wrote that the run failed",
            context=str(run.path / "outcome.json"),
            exit_code=1,
        )
    said, hint = reason(failure, ended.logs), ""
    who = f"rank {failure.rank} failed first" if spec.world_size > 1 else "the script failed"
    if ended.left_early:
        gone = ended.left_early
        who = f"rank{'s' if len(gone) > 1 else ''} {', '.join(map(str, gone))} ended early, with exit code 0"
        who += f"; rank {failure.rank} then failed"
        said = _GLOO.sub("", said)
        hint = "all ranks have to take as many steps; look for a return or sys.exit() that some ranks reach"
    elif _WRITTEN_FOR_SRUN.search(said):
        hint = "written for srun? read RANK, LOCAL_RANK and WORLD_SIZE, or `rankup submit --launcher srun`"
    where = f" on node {spec.node_rank}" if spec.nodes > 1 else ""
    return RankupError(
        "worker-failed",
        f"{who}{where}: {said}",
        context=str((ended.logs.spare or run.logs) / f"rank-{failure.rank}.err"),
        hint=hint,
        exit_code=1,
    )


def _launcher_error(ended: NodeOutcome) -> RankupError:
    """No rank failed, or none that lived to say so: the launcher's own words are all there is."""
    lines = last_lines(ended.launcher_log)
    said = last_exception(lines) or next((line for line in reversed(lines) if line.strip()), "")
    how = (
        f"was killed by {signal.Signals(-ended.code).name}"
        if ended.code < 0
        else f"ended with exit code {ended.code}"
    )
    return RankupError(
        "launcher-failed",
        f"the launcher {how}" + (f": {said}" if said else ""),
        context=str(ended.launcher_log),
        exit_code=1,
    )
