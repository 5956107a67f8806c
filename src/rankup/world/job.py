"""The scheduler's job in which a process runs, with any launcher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SchedulerJob:
    """A job's id, how often it was requeued, and its hosts, each once, in the scheduler's order.

    Without a scheduler all fields are empty. ``node_name`` is the scheduler's name of this process's node.
    ``sources`` maps ``job_id``, ``restart`` and ``hosts`` to the variables they came from.
    """

    id: str | None = None
    restart: int = 0
    hosts: tuple[str, ...] = ()
    node_name: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
