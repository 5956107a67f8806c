"""OpenPBS and PBS Pro: qsub, qstat, qdel."""

from __future__ import annotations

import getpass
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from rankup.core.shell import Completed
from rankup.errors import RankupError
from rankup.findings.finding import Finding
from rankup.schedulers.base import JobStatus, Scheduler
from rankup.schedulers.error_table import explain_error, own_words
from rankup.schedulers.pbs import directives, limits, queue_range, start_estimate
from rankup.schedulers.pbs.errors import CANCEL, ENDED, SUBMIT, UNREACHABLE
from rankup.schedulers.pbs.qstat import Attributes, read_qstat
from rankup.schedulers.pbs.states import job_status
from rankup.schedulers.submit_environment import clean_environment
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec

_ID = re.compile(r"\d+(?:\[\d*\])?(?:\.[\w.-]+)?", re.ASCII)
# From so many jobs on, one question about all jobs is gentler to the server than one about each.
_ONE_BY_ONE = 8
_ENDED_CODES = (35, 153)  # finished, unknown: qdel's exit codes, PBS's error numbers modulo 256


class Pbs(Scheduler):
    """An id is as qsub prints it, ``12.server``; that of an array ``12[].server``, of its tasks ``12[3].server``."""

    name = "pbs"
    array_flag = "-J"

    def submit_command(self, script: Path, spec: JobSpec, site: Site) -> list[str]:
        return ["qsub", *_depend(spec), str(script)]

    def successor_command(self, script: Path, spec: JobSpec, site: Site, after: str) -> list[str]:
        return ["qsub", "-W", f"depend=afterany:{after}", "-v", "RANKUP_SUCCESSOR=1", str(script)]

    def wait_again_command(self, ident: str, spec: JobSpec) -> list[str]:
        """A job that is ending has released what waits for it, and still takes a new one, which then waits for ever.
        Once it has ended, a qalter to the same jobs is answered rightly."""
        depend = _depend(spec)
        return ["qalter", *depend, ident] if depend else []

    def read_submit(self, done: Completed, spec: JobSpec) -> str:
        if done.code != 0:
            raise explain_error(done, SUBMIT, "qsub", spec)
        for line in reversed(done.out.splitlines()):  # sites' own checks may print above it
            if _ID.fullmatch(line.strip()):
                return line.strip()
        raise RankupError(
            "no-job-id",
            "qsub ended well, but printed no job id",
            context=own_words(done),
            hint="`qstat -u $USER` says whether the job is there; is `qsub` an alias or a wrapper here?",
            exit_code=1,
        )

    def interactive_command(self, spec: JobSpec, site: Site) -> list[str]:
        raw = [token for directive in spec.directives for token in shlex.split(directive)]
        return ["qsub", "-I", *directives.resources(spec, self.nodes(spec, site)), *raw]

    def directives(self, spec: JobSpec, site: Site, output: str, error: str = "") -> list[str]:
        tokens = directives.resources(spec, self.nodes(spec, site))
        return directives.directives(spec, tokens, output, array=self.array_flag)

    def nodes(self, spec: JobSpec, site: Site) -> list[str]:
        """The nodes that a job asks for, as values of ``-l``."""
        return directives.select(spec, site)

    def status_commands(self, ids: Sequence[str]) -> list[list[str]]:
        """JSON, also of what has ended (``-x``); as text, where JSON came out wrong; and without ``-x``.

        Several ids with JSON would print the first alone, so it is one each or all.
        """
        if not ids:
            return [["qstat", "-f", "-F", "json"], ["qstat", "-f"]]
        tasks = ["-t"] if any("[" in job for job in ids) else []
        asked = [[job] for job in ids] if len(ids) <= _ONE_BY_ONE else [[]]
        commands = [["qstat", "-x", "-f", *tasks, "-F", "json", *job] for job in asked]
        return [*commands, ["qstat", "-x", "-f", *tasks, *ids], ["qstat", "-f", *tasks, *ids]]

    def read_status(self, done: Completed, ids: Sequence[str]) -> dict[str, JobStatus]:
        jobs = read_qstat(done.out)
        if not jobs and done.code != 0:
            words = own_words(done)
            lost = any(re.search(row.pattern, words, re.IGNORECASE) for row in UNREACHABLE)
            if lost or done.code in (124, 127):
                raise explain_error(done, UNREACHABLE, "qstat")
        if not ids:
            owner = f"{getpass.getuser()}@"
            mine = {
                job: values for job, values in jobs.items() if values.get("Job_Owner", "").startswith(owner)
            }
            return {job: self.status_of(job, values) for job, values in mine.items()}
        found: dict[str, JobStatus] = {}
        for asked in ids:
            for job, values in jobs.items():
                if _same(job, asked):
                    found[asked] = self.status_of(asked, values)
                elif index := _task_of(job, asked):
                    task = asked.replace("[]", index, 1)
                    found[task] = self.status_of(task, values)
        return found

    def status_of(self, job: str, attributes: Attributes) -> JobStatus:
        return job_status(job, attributes)

    def find_command(self) -> list[str]:
        return ["qstat", "-f"]

    def read_found(self, done: Completed, folder: Path) -> list[str]:
        """By the log, ``head:/…/logs/job.log``."""
        jobs = read_qstat(done.out).items()
        return [job for job, values in jobs if f":{folder}/" in f":{values.get('Output_Path', '')}"]

    def cancel_command(self, ids: Sequence[str]) -> list[str]:
        return ["qdel", *ids]

    def read_cancel(self, done: Completed) -> None:
        if done.code == 0 or (done.code in _ENDED_CODES and not done.err.strip()):
            return
        # One line for each job that it could not delete.
        complaints = [line for line in done.err.splitlines() if line.strip() and not re.search(ENDED, line)]
        if complaints or not done.err.strip():
            raise explain_error(Completed(done.code, "", "\n".join(complaints)), CANCEL, "qdel")

    def limits_command(self, spec: JobSpec, site: Site, env: Mapping[str, str]) -> list[str]:
        return limits.limits_command(spec, env)

    def read_limits(
        self, done: Completed, spec: JobSpec, site: Site, env: Mapping[str, str]
    ) -> list[Finding]:
        return limits.read_limits(done, spec, site)

    def range_command(self, spec: JobSpec) -> list[str]:
        return queue_range.range_command(spec)

    def out_of_range(self, done: Completed, spec: JobSpec) -> list[str]:
        return queue_range.out_of_range(done.out, spec)

    def start_command(self, spec: JobSpec, site: Site) -> list[str]:
        return [*start_estimate.START_COMMAND]

    def read_start(self, done: Completed, spec: JobSpec) -> float:
        return start_estimate.read_start(done, spec)

    def clean(self, env: Mapping[str, str]) -> dict[str, str]:
        return clean_environment(env)


def _depend(spec: JobSpec) -> list[str]:
    """The option for the jobs that ``spec`` waits for."""
    jobs = {"afterok": spec.after, "afterany": spec.after_any}
    conditions = [":".join([condition, *ids]) for condition, ids in jobs.items() if ids]
    return ["-W", f"depend={','.join(conditions)}"] if conditions else []


def _same(job: str, asked: str) -> bool:
    """``12.server`` may be asked for as ``12``, and qstat may call the server by a shorter or longer name."""
    number, _, server = job.partition(".")
    wanted, _, other = asked.partition(".")
    return number == wanted and (not other or server.startswith(other) or other.startswith(server))


def _task_of(job: str, asked: str) -> str:
    """``[3]`` where ``12[3].server`` is a task of the array ``12[].server`` that was asked for, else ""."""
    index = re.search(r"\[\d+\]", job)
    return index[0] if index and _same(job.replace(index[0], "[]", 1), asked) else ""
