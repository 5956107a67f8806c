"""Finds the scheduler's job in which a process runs."""

from __future__ import annotations

from collections.abc import Mapping

from rankup.world import pbs, slurm
from rankup.world.job import SchedulerJob


def detect_job(env: Mapping[str, str]) -> SchedulerJob:
    """SLURM's job, else PBS's, else none."""
    return slurm.job(env) or pbs.job(env) or SchedulerJob()
