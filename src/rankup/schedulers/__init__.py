"""Schedulers: who gives nodes to jobs. They return commands and read answers, and never run anything."""

from __future__ import annotations

SCHEDULERS = {
    "slurm": "rankup.schedulers.slurm:Slurm",
    "pbs": "rankup.schedulers.pbs:Pbs",
    "local": "rankup.schedulers.local:Local",
    "run": "rankup.schedulers.local:Foreground",  # no site's: of runs that were not submitted
}
