"""SLURM, from version 20 on: sbatch, squeue, sacct, scontrol, scancel, salloc."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from rankup.core.shell import Completed
from rankup.errors import RankupError
from rankup.findings.finding import Finding
from rankup.schedulers.base import JobStatus, Scheduler
from rankup.schedulers.error_table import explain_error, own_words
from rankup.schedulers.slurm import directives, limits, start_estimate
from rankup.schedulers.slurm.answers import (
    FIELD,
    RECORD,
    SACCT_FIELDS,
    SQUEUE_FORMAT,
    by_asked_id,
    read_answer,
)
from rankup.schedulers.slurm.errors import CANCEL, ENDED, SUBMIT, UNREACHABLE
from rankup.schedulers.submit_environment import clean_environment
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec

_SUBMITTED = re.compile(r"(?:Submitted batch job )?(\d+(?:;\S+)?)")


class Slurm(Scheduler):
    """An id is ``123``, or ``123;east`` for a job on another cluster than the one around us (``--clusters``)."""

    name = "slurm"

    def submit_command(self, script: Path, spec: JobSpec, site: Site) -> list[str]:
        # Without the last option, a job whose condition can no longer come true waits for ever.
        after = _dependency(afterok=spec.after, afterany=spec.after_any)
        for_ever = ["--kill-on-invalid-dep=yes"] if spec.after else []
        return [*self._sbatch(spec), *after, *for_ever, str(script)]

    def successor_command(self, script: Path, spec: JobSpec, site: Site, after: str) -> list[str]:
        return [*self._sbatch(spec), *_dependency(afterany=[after]), str(script)]

    def exclude_options(self, hosts: Sequence[str], spec: JobSpec) -> list[str]:
        # One on the command line replaces that of the script.
        words = [word for directive in spec.directives for word in shlex.split(directive)]
        own = [
            value
            for word in words
            for name, _, value in [word.partition("=")]
            if name == "--exclude" and value
        ]
        return [f"--exclude={','.join([*own, *hosts])}"]

    def _sbatch(self, spec: JobSpec) -> list[str]:
        tokens = ["sbatch", "--parsable"]
        # SBATCH_ACCOUNT and SBATCH_PARTITION of the login shell beat the script's directives, and not the command line.
        for option, short, value in (("--account", "-A", spec.account), ("--partition", "-p", spec.queue)):
            if value and not any(directive.startswith((option, short)) for directive in spec.directives):
                tokens.append(f"{option}={value}")
        return tokens

    def read_submit(self, done: Completed, spec: JobSpec) -> str:
        if done.code != 0:
            raise explain_error(done, SUBMIT, "sbatch", spec)
        for line in reversed(done.out.splitlines()):  # sites' own checks may print above it
            found = _SUBMITTED.fullmatch(line.strip())
            if found:
                return found[1]
        raise RankupError(
            "no-job-id",
            "sbatch ended well, but printed no job id",
            context=own_words(done),
            hint="`squeue --me` says whether the job is there; is `sbatch` an alias or a wrapper here?",
            exit_code=1,
        )

    def directives(self, spec: JobSpec, site: Site, output: str, error: str = "") -> list[str]:
        return directives.directives(spec, site, output, error)

    def interactive_command(self, spec: JobSpec, site: Site) -> list[str]:
        raw = [token for directive in spec.directives for token in shlex.split(directive)]
        # Left to itself salloc opens the shell on the login node. This step keeps nothing from those started in it.
        on_node = ["srun", "--interactive", "--preserve-env", "--pty", os.environ.get("SHELL") or "bash"]
        return ["salloc", *directives.resources(spec, site), *raw, *on_node]

    def status_commands(self, ids: Sequence[str]) -> list[list[str]]:
        """squeue for what waits and runs, sacct for what has ended, scontrol where there is no accounting."""
        queue = ["squeue", "--noheader", "--array", f"--format={SQUEUE_FORMAT}"]
        past = ["sacct", "--allocations", "--parsable2", f"--delimiter={FIELD}", f"--format={SACCT_FIELDS}"]
        if not ids:
            return [[*queue, f"--user={os.getuid()}"]]
        commands = []
        for cluster, jobs in _by_cluster(ids).items():
            # squeue fails for one job that it has forgotten, and leaves such out where there are several.
            commands.append([*queue, *cluster, f"--jobs={','.join(jobs)}"])
            commands.append([*past, *cluster, f"--jobs={','.join(jobs)}"])
            commands += [["scontrol", *cluster, "--oneliner", "show", "job", job] for job in jobs]
        return commands

    def read_status(self, done: Completed, ids: Sequence[str]) -> dict[str, JobStatus]:
        if done.code != 0:
            optional = re.match(r"\s*(sacct|scontrol)\b", done.err)
            words = own_words(done)
            lost = any(re.search(row.pattern, words, re.IGNORECASE) for row in UNREACHABLE)
            if not optional and (lost or done.code in (124, 127)):
                raise explain_error(done, UNREACHABLE, "squeue")
        return by_asked_id(read_answer(done), ids)

    def find_command(self) -> list[str]:
        return ["squeue", "--noheader", f"--user={os.getuid()}", f"--format={RECORD}%i{FIELD}%o"]

    def read_found(self, done: Completed, folder: Path) -> list[str]:
        jobs = [record.partition(FIELD) for record in done.out.split(RECORD)[1:]]
        return [job for job, _, script in jobs if script.startswith(f"{folder}/")]

    def cancel_command(self, ids: Sequence[str]) -> list[str]:
        clusters = _by_cluster(ids)
        if len(clusters) > 1:
            raise RankupError(
                "two-clusters",
                "jobs of different clusters cannot be cancelled by one command",
                context=", ".join(ids),
                hint="cancel them one cluster at a time",
            )
        ((cluster, jobs),) = clusters.items()
        return ["scancel", *cluster, *jobs]

    def read_cancel(self, done: Completed) -> None:
        # Some versions end with 0 whatever happened, others fail for jobs that had ended: the words count.
        complaints = [
            line for line in done.err.splitlines() if "error" in line and not re.search(ENDED, line)
        ]
        if complaints or (done.code != 0 and not re.search(ENDED, done.err)):
            raise explain_error(
                Completed(done.code or 1, "", "\n".join(complaints) or done.err), CANCEL, "scancel"
            )

    def limits_command(self, spec: JobSpec, site: Site, env: Mapping[str, str]) -> list[str]:
        return limits.limits_command(spec, env)

    def read_limits(
        self, done: Completed, spec: JobSpec, site: Site, env: Mapping[str, str]
    ) -> list[Finding]:
        return limits.read_limits(done, spec, env)

    def start_command(self, spec: JobSpec, site: Site) -> list[str]:
        return start_estimate.start_command(spec, site)

    def read_start(self, done: Completed, spec: JobSpec) -> float:
        return start_estimate.read_start(done, spec)

    def clean(self, env: Mapping[str, str]) -> dict[str, str]:
        return clean_environment(env)


def _dependency(**jobs: Sequence[str]) -> list[str]:
    """One option for all conditions: each of them has to hold."""
    conditions = [
        ":".join([condition, *(job.partition(";")[0] for job in ids)])
        for condition, ids in jobs.items()
        if ids
    ]
    return [f"--dependency={','.join(conditions)}"] if conditions else []


def _by_cluster(ids: Sequence[str]) -> dict[tuple[str, ...], list[str]]:
    """The ids as SLURM's clients take them, by the option that names their cluster."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for job in ids:
        plain, _, cluster = job.partition(";")
        groups.setdefault((f"--clusters={cluster}",) if cluster else (), []).append(plain)
    return groups
