"""Floor 1: who am I? ``World``, and one small file per environment that can say so."""

from __future__ import annotations

from rankup.world.job import SchedulerJob
from rankup.world.world import World

__all__ = ["SchedulerJob", "World"]
