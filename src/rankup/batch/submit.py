"""Submits a job: writes the run directory, then calls the scheduler. If that fails, nothing is left."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from rankup.batch.freeze import freeze, frozen_job
from rankup.batch.queue import FOLLOW_PATIENCE_S, query_scheduler
from rankup.batch.store import SubmittedRun, find
from rankup.core import shell
from rankup.core.arrays import indices, task_folder
from rankup.core.files import make_folder, write_atomic, writing_to
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.findings.finding import Finding
from rankup.resolve.job_toml import job_toml
from rankup.resolve.resolved import Resolved
from rankup.schedulers.base import Scheduler, scheduler_named
from rankup.schedulers.queue_limits import CODE
from rankup.script.render import render
from rankup.script.settings import MOST_SUCCESSORS
from rankup.sites import bad_nodes
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec

_SUBMIT_TIMEOUT_S = 120
_LIMITS_TIMEOUT_S = 10
_ENDING_TIMEOUT_S = 60
_ENDING_POLL_S = 0.5


def submit(
    job: Resolved, *, env: Mapping[str, str], made: Callable[[RunDir], None] = lambda run: None
) -> SubmittedRun:
    """Give the job to its scheduler. ``env`` is the caller's environment, where the secrets' values are.

    ``made`` is told the run directory before the scheduler is called, so that a caller that was killed finds the job
    again (``recover.py``).

    Raises ``RankupError`` if the scheduler refuses, and removes the run directory. If the scheduler does not answer,
    the directory stays, with a marker that ends the job if it starts.
    """
    check_folder(job.spec.folder)
    run = RunDir.create(job.spec.runs_root, job.spec.name)
    try:
        made(run)
        with writing_to(run.path, "run directory"):
            write_files(job, run, env)
            return hand_over(job, run, env)
    except SubmitUnclear as unknown:
        disown(run, job.spec)
        raise unknown.error from None
    except BaseException:
        shutil.rmtree(run.path)
        with contextlib.suppress(OSError):  # there are other runs of this name
            run.path.parent.rmdir()
        raise


class SubmitUnclear(Exception):
    """The scheduler did not answer a submit: the job may be in the queue, with an unknown id."""

    def __init__(self, error: RankupError) -> None:
        super().__init__(str(error))
        self.error = error


def disown(run: RunDir, spec: JobSpec) -> None:
    """If the job with the unknown id starts, its script finds this marker and ends. So the directory stays."""
    for folder in [task_folder(run.path, index) for index in indices(spec.array)] or [run.path]:
        (folder / "CANCELLED").touch(mode=0o600)
    (run.path / "secrets.env").unlink(missing_ok=True)


def check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise RankupError(
            "no-such-folder",
            f"the job's folder {str(folder)!r} does not exist",
            hint="submit from a directory that all nodes of the cluster see",
        )


def write_files(job: Resolved, run: RunDir, env: Mapping[str, str]) -> None:
    """Write the frozen code, job.toml, job.sh, secrets.env and the tasks' folders, readable by their owner only."""
    spec = job.spec
    freeze(spec, run)
    write_atomic(run.path / "job.toml", job_toml(job), mode=0o600)
    write_atomic(run.path / "job.sh", render(frozen_job(spec, run), job.site, run.path), mode=0o700)
    if spec.secrets:
        lines = [f"export {name}={shell.quote([env[name]])}\n" for name in spec.secrets]
        write_atomic(run.path / "secrets.env", os.fsencode("".join(lines)), mode=0o600)
    for index in indices(spec.array):
        folder = task_folder(run.path, index)
        for path in (folder, folder / "logs", folder / "records"):
            make_folder(path, mode=0o700, purpose="task's directory")


def hand_over(job: Resolved, run: RunDir, env: Mapping[str, str]) -> SubmittedRun:
    """Submit the job, and successors if they must be submitted now; their ids go to the file ``jobs``."""
    spec, site = _waits_for_newest(job.spec), job.site
    scheduler = scheduler_named(site.scheduler)
    script = run.path / "job.sh"
    ids: list[str] = []
    try:
        ids.append(_ask(scheduler, _submit_command(scheduler, script, spec, site), job, env))
        _wait_again(scheduler, ids[-1], spec, env)
        for _ in range(successors(job)):
            command = scheduler.successor_command(script, spec, site, ids[-1])
            waits_for = {"after": (), "after_any": (ids[-1],)}
            ids.append(_ask(scheduler, command, job, env))
            _wait_again(scheduler, ids[-1], spec.model_copy(update=waits_for), env)
        # Appended, not replaced: the job may have begun already, and writes its successor's id there too.
        with (run.path / "jobs").open("a") as file:
            file.write("".join(f"{ident}\n" for ident in ids))
    except BaseException:
        if ids:
            shell.run(scheduler.cancel_command(ids), env=scheduler.clean(env))
        raise
    return SubmittedRun(run, spec, site.scheduler, site.name)


def _wait_again(scheduler: Scheduler, ident: str, spec: JobSpec, env: Mapping[str, str]) -> None:
    """Have the job ``ident`` wait again if a job that it waits for has ended since, or has a successor since: the
    scheduler may have forgotten the wait, and the job that has the successor may not have seen it.

    Not for jobs of which the scheduler knows nothing any more: it would end what waits for them.
    """
    if not scheduler.wait_again_command(ident, spec):
        return
    deadline = time.monotonic() + _ENDING_TIMEOUT_S
    with contextlib.suppress(RankupError):  # it does not answer now; it has taken the job
        while True:
            newest = _waits_for_newest(spec)
            others = (*newest.after, *newest.after_any)
            known = query_scheduler(scheduler, others, FOLLOW_PATIENCE_S)
            if not any(job.ending for job in known.values()) or time.monotonic() > deadline:
                break
            time.sleep(_ENDING_POLL_S)
        changed = newest != spec or any(job.state.ended for job in known.values())
        if changed and all(job in known for job in others):
            again = scheduler.wait_again_command(ident, newest)
            shell.run(again, env=scheduler.clean(env), timeout=_SUBMIT_TIMEOUT_S)


def plan(job: Resolved) -> tuple[str, list[list[str]]]:
    """(the script, the commands) that ``submit`` would write and run, with placeholders for the ids."""
    spec, site = job.spec, job.site
    check_folder(spec.folder)
    script = spec.runs_root / spec.name / "RUN" / "job.sh"
    scheduler = scheduler_named(site.scheduler)
    commands = [_submit_command(scheduler, script, spec, site)]
    commands += [
        scheduler.successor_command(script, spec, site, "JOB" if i == 0 else f"SUCCESSOR-{i}")
        for i in range(successors(job))
    ]
    return render(frozen_job(spec, RunDir(script.parent)), site, script.parent), commands


def _submit_command(scheduler: Scheduler, script: Path, spec: JobSpec, site: Site) -> list[str]:
    """Without the nodes that the team has noted as bad, if the scheduler takes that."""
    program, *options = scheduler.submit_command(script, spec, site)
    bad = [node.host for node in bad_nodes.read(bad_nodes.file_of(site))] if site.bad_nodes else []
    return [program, *(scheduler.exclude_options(bad, spec) if bad else []), *options]


def successors(job: Resolved) -> int:
    """How many jobs are submitted after the first one, if its nodes may not submit successors themselves."""
    spec, site = job.spec, job.site
    if site.family != "pbs" or site.pbs.nodes_may_submit or spec.array:
        return 0
    return min(spec.max_requeues, MOST_SUCCESSORS)


def over_queue_limits(
    job: Resolved, *, env: Mapping[str, str], ignore: Collection[str] = ()
) -> list[Finding]:
    """What the scheduler itself says that no queue ever grants; nothing if it does not say, or not soon."""
    scheduler = scheduler_named(job.site.scheduler)
    command = scheduler.limits_command(job.spec, job.site, env) if CODE not in ignore else []
    if not command:
        return []
    done = shell.run(command, env=scheduler.clean(env), timeout=_LIMITS_TIMEOUT_S)
    return scheduler.read_limits(done, job.spec, job.site, env)


def _waits_for_newest(spec: JobSpec) -> JobSpec:
    """``spec``, to wait for the current jobs of the runs that it waits for."""
    waits_for = {
        key: tuple(_newest(ident, spec.runs_root) for ident in getattr(spec, key))
        for key in ("after", "after_any")
    }
    return spec.model_copy(update=waits_for)


def _newest(ident: str, runs_root: Path) -> str:
    """The id of the current job of the run of the job ``ident``: on PBS a successor has another id."""
    try:
        ids: tuple[str, ...] = () if "[" in ident else find(ident, runs_root).ids()
    except RankupError:  # not of a run below ``runs_root``
        return ident
    numbers = [one.partition(".")[0] for one in ids]
    return ids[-1] if ident.partition(".")[0] in numbers else ident


def _ask(scheduler: Scheduler, command: list[str], job: Resolved, env: Mapping[str, str]) -> str:
    try:
        done = shell.run(command, env=scheduler.clean(env), cwd=job.spec.folder, timeout=_SUBMIT_TIMEOUT_S)
    except KeyboardInterrupt:
        raise SubmitUnclear(_unknown(command, "interrupted")) from None
    try:
        return scheduler.read_submit(done, job.spec)
    except RankupError as error:
        if error.code == "no-job-id" or _NO_ANSWER.search(error.context):
            raise SubmitUnclear(_unknown(command, error.context)) from error
        if error.code == "over-limit" and (asked := scheduler.range_command(job.spec)):
            grants = shell.run(asked, env=scheduler.clean(env), timeout=_LIMITS_TIMEOUT_S)
            if said := scheduler.out_of_range(grants, job.spec):
                message = f"the queue {job.spec.queue} does not grant this: {'; '.join(said)}"
                raise RankupError(error.code, message, context=error.context, hint=error.hint) from None
        raise


# Messages after which the job may have been accepted: SLURM's client gives up before the controller does.
_NO_ANSWER = re.compile(
    r"no answer within|timed out|Zero Bytes were transmitted|Message (receive|send) failure|End of File",
    re.IGNORECASE,
)


def _unknown(command: list[str], why: str) -> RankupError:
    return RankupError(
        "maybe-submitted",
        f"{command[0]} did not answer; the job may be in the queue",
        context=why,
        hint="submit again; `squeue --me` or `qstat -u $USER` shows the first job, which ends at once if it starts",
        exit_code=1,
    )
