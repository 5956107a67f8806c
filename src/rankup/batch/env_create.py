"""Builds an environment here, or in a short job if the compute nodes have another architecture."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from rankup.core import shell
from rankup.core.files import make_folder, write_atomic
from rankup.errors import RankupError
from rankup.resolve.precedence import resolve
from rankup.resolve.resolved import Resolved
from rankup.run.interrupts import Interrupts
from rankup.script.env_build import FACTS, Environment, render
from rankup.sites.site import Site

JOB_TIME = "1h"  # the longest part is the download of torch and CUDA's libraries: minutes
_POLL_S = 0.05


def needs_job(site: Site, machine: str) -> bool:
    """Whether the site's compute nodes are of another architecture than this ``machine`` (``uname -m``)."""
    return site.node.arch not in ("", machine)


def modules_of(site: Site, *, gpu: bool) -> tuple[str, ...]:
    """What jobs on one node of this site load, with GPUs or without."""
    modules = site.defaults.get("modules", ())
    for condition in ("gpu" if gpu else "cpu", "one_node"):
        modules = site.when.get(condition, {}).get("modules", modules)
    return tuple(modules)


def build_here(environment: Environment, output: IO[Any]) -> int:
    """Run the script on this machine; its output goes to ``output`` and stderr. Returns its exit code.

    A signal ends it with all its processes, and the partial environment is removed.
    """
    with Interrupts() as interrupts:
        tokens = ["bash", "-c", render(environment), "rankup-env-create"]
        # A session of its own, so that pip ends with the script, which removes the partial environment.
        process = shell.start(
            tokens, stdin=shell.DEVNULL, stdout=output, new_session=True, die_with_parent=True
        )
        passed_on = 0
        while process.poll() is None:
            if interrupts.count > passed_on:
                passed_on = interrupts.count
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, interrupts.first or signal.SIGTERM)
            time.sleep(_POLL_S)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def as_job(
    environment: Environment, site: str | None, flags: Mapping[str, Any], env: Mapping[str, str], folder: Path
) -> Resolved:
    """The job that builds it: one process on one node, with a GPU to try it on if the site has GPUs.

    ``flags`` are those of ``rankup submit``, by the keys of ``JobSpec``.
    """
    ours: dict[str, Any] = {"name": f"env-{environment.name}", "nodes": 1, "launcher": "single"}
    ours |= {"nproc_per_node": 1, "max_requeues": 0, "time": JOB_TIME}
    ours |= {"gpus_per_node": 0 if environment.cuda == "cpu" else 1}
    # The script loads the modules itself, and runs outside of any environment or container.
    ours |= {"modules": (), "venv": "", "conda": "", "pixi": "", "container": ""}
    command = ("bash", str(script_path(environment)))
    job = resolve({**ours, **flags}, command=command, file=None, site=site, env=env, folder=folder)
    if job.site.scheduler == "local":
        raise RankupError(
            "other-architecture",
            f"environments of {job.site.name} are for {job.site.node.arch}, and this machine is not",
            context=f"site {job.site.name}, scheduler local",
            hint=f"run this command on a machine of {job.site.node.arch}, or run the script of `--dry-run` there",
        )
    return job


def script_path(environment: Environment) -> Path:
    """The script of the job, in the folder of environments."""
    return environment.folder / f"{environment.name}.sh"


def write_script(environment: Environment) -> None:
    make_folder(environment.folder, purpose="directory of environments")
    write_atomic(script_path(environment), render(environment), mode=0o755)


def read_facts(path: Path) -> dict[str, Any]:
    """The facts of the environment in ``path``; only the path if a network file system does not show them yet."""
    with contextlib.suppress(OSError):
        return dict(json.loads((path / FACTS).read_text()))
    return {"path": str(path)}
