"""Schedulers: who gives nodes to jobs. They return commands and read answers, and never run anything."""

from __future__ import annotations

SCHEDULERS = {
    "slurm": "rankup.schedulers.slurm.commands:Slurm",
    "pbs": "rankup.schedulers.pbs.commands:Pbs",
    "local": "rankup.schedulers.local.commands:Local",
    "run": "rankup.schedulers.local.commands:Foreground",  # no site's: of runs that were not submitted
}
