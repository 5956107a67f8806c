"""``job.toml`` and ``job.sh``: what a run was asked to do, for people and for doing it again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from rankup.core import shell
from rankup.core.files import write_atomic
from rankup.core.rundir import RunDir
from rankup.run.job import LocalJob
from rankup.run.resolve import Resolved

# Keys of job.toml that are called otherwise on the command line.
FLAG_OF = {"threads_per_process": "threads"}


def describe(job: LocalJob, resolved: Resolved, run: RunDir) -> None:
    """Write both files into ``run``, for its owner's eyes: arguments may hold secrets."""
    write_atomic(run.path / "job.toml", job_toml(job, resolved, os.getcwd()), mode=0o600)  # noqa: PTH109
    script = job_script(job, resolved, os.getcwd())  # noqa: PTH109
    write_atomic(run.path / "job.sh", os.fsencode(script), mode=0o700)


def job_toml(job: LocalJob, resolved: Resolved, folder: str) -> str:
    """The resolved values, then where each came from: flag, environment or default."""
    values: dict[str, object] = {
        "command": list(job.command),
        "name": resolved.name,
        "launcher": resolved.launcher,
        "nproc_per_node": resolved.nproc,
        "nnodes": resolved.nnodes,
        "node_rank": resolved.node_rank,
        "max_restarts": resolved.max_restarts,
        "python": job.python,
        "folder": folder,
    }
    if resolved.endpoint is not None:
        values["rdzv_endpoint"] = job.endpoint
    if resolved.threads is not None:
        values["threads_per_process"] = resolved.threads
    origins = {
        key: job.origin.get(FLAG_OF.get(key, key), "flag" if key == "command" else "default")
        for key in values
    }
    tables: dict[str, Mapping[str, object]] = {"job": values, "origin": origins}
    if job.env:
        tables["environment"] = job.env
    return "\n".join(
        f"[{table}]\n" + "".join(f"{_key(key)} = {_value(value)}\n" for key, value in rows.items())
        for table, rows in tables.items()
    )


def job_script(job: LocalJob, resolved: Resolved, folder: str) -> str:
    """Bash that runs the job again, as a run of its own."""
    options = [f"--nproc-per-node={resolved.nproc}", f"--max-restarts={job.max_restarts}"]
    options += [f"--name={resolved.name}", f"--runs-root={job.runs_root}"]
    if resolved.endpoint is not None:
        options += [f"--nnodes={resolved.nnodes}", f"--node-rank={resolved.node_rank}"]
        options += [f"--rdzv-endpoint={job.endpoint}"]
    exports = "".join(f"export {shell.quote([f'{k}={v}'])}\n" for k, v in job.env.items())
    command = shell.quote([job.python, "-m", "rankup", "run", *options, "--", *job.command])
    return f"#!/usr/bin/env bash\nset -eu\ncd {shell.quote([folder])}\n{exports}exec {command}\n"


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)


def _value(value: object) -> str:
    """JSON's strings, numbers and lists are TOML's, given real characters in place of surrogate escapes."""
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return text.encode("utf-8", "replace").decode()
