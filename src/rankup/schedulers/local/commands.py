"""No scheduler: a job runs here and now, detached. For machines of one's own, and to try a job before the queue."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rankup.core.shell import Completed
from rankup.errors import RankupError
from rankup.schedulers.base import JobState, JobStatus, Scheduler
from rankup.schedulers.error_table import own_words
from rankup.schedulers.local.process import ELSEWHERE
from rankup.schedulers.submit_environment import clean_environment
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec

# Not ``-m``, which would import what lies in the current folder (a user's signal.py) before what Python brings.
_PROGRAM = (
    "import sys; sys.path[:] = filter(None, sys.path); from rankup.schedulers.local.process import main; "
)


def _process(*words: str) -> list[str]:
    return [sys.executable, "-c", _PROGRAM + "sys.exit(main(sys.argv[1:]))", *words]


class Local(Scheduler):
    """An id is ``PID.START@HOST``. How a job ended stands in its run directory alone: nobody here remembers it."""

    name = "local"

    def submit_command(self, script: Path, spec: JobSpec, site: Site) -> list[str]:
        """Its output goes to ``logs/job.log`` beside the script, as a scheduler's directives would have it."""
        after, after_any = " ".join(spec.after), " ".join(spec.after_any)
        for flag, asked in (("--array", spec.array), ("--after", after), ("--after-any", after_any)):
            if asked:
                raise _needs_queue(f"{flag} {asked}", flag, site)
        return _process("start", str(script), str(script.parent / "logs" / "job.log"))

    def successor_command(self, script: Path, spec: JobSpec, site: Site, after: str) -> list[str]:
        raise _needs_queue(f"a job that waits for the end of {after}", "--max-requeues", site)

    def read_submit(self, done: Completed, spec: JobSpec) -> str:
        if done.code == 0 and done.out.strip():
            return done.out.strip().splitlines()[-1]
        lines = (done.err or done.out).strip().splitlines()
        raise RankupError(
            "not-started",
            "the job's script could not be started on this machine",
            context=lines[-1] if lines else f"exit code {done.code}",
            hint="bash has to be installed, and the run directory's logs/ has to be writable",
            exit_code=1,
        )

    def interactive_command(self, spec: JobSpec, site: Site) -> list[str]:
        return ["bash"]

    def status_commands(self, ids: Sequence[str]) -> list[list[str]]:
        return [_process("status", *ids)] if ids else []

    def read_status(self, done: Completed, ids: Sequence[str]) -> dict[str, JobStatus]:
        found = {}
        for line in done.out.splitlines():
            words = line.split()
            if len(words) != 3 or (ids and words[0] not in ids):
                continue
            job, age, host = words
            away = (
                f"started on {host}: only that machine knows whether it still runs"
                if age == ELSEWHERE
                else ""
            )
            elapsed = int(age) if age.isascii() and age.isdigit() else None
            found[job] = JobStatus(
                job, JobState.RUNNING, age if away else "running", away, nodes=host, elapsed=elapsed
            )
        return found

    def cancel_command(self, ids: Sequence[str]) -> list[str]:
        return _process("cancel", *ids)

    def read_cancel(self, done: Completed) -> None:
        if done.code != 0:
            raise RankupError(
                "job-elsewhere",
                "a job without a scheduler can be cancelled only on the machine that it runs on",
                context=own_words(done),
                hint="log in there, and cancel it again",
                exit_code=1,
            )

    def clean(self, env: Mapping[str, str]) -> dict[str, str]:
        return clean_environment(env)


class Foreground(Local):
    """``rankup run`` itself, in somebody's terminal."""

    name = "run"

    def cancel_command(self, ids: Sequence[str]) -> list[str]:
        return _process("interrupt", *ids)


def _needs_queue(what: str, flag: str, site: Site) -> RankupError:
    return RankupError(
        "needs-a-scheduler",
        f"{what} requires a scheduler, and this machine has none",
        context=f"site {site.name}",
        hint=f"choose a cluster with --site, or leave {flag} out",
    )
