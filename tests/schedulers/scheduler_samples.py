"""A job and a site for the tests of schedulers, and the answer of a command that was never run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankup.core.shell import Completed
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec

SCRIPT = Path("/scratch/runs/demo/1/job.sh")
SITE = Site(name="here", scheduler="slurm")


def job(**values: Any) -> JobSpec:
    return JobSpec(
        **{
            "command": ("train.py",),
            "name": "demo",
            "folder": Path("/scratch"),
            "launcher": "torchrun",
            **values,
        }
    )


def said(out: str = "", err: str = "", code: int = 0) -> Completed:
    return Completed(code, out, err)
