"""What the times of a study depend on besides the work: where it ran, on how many CPUs, and how busy they were."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

import psutil

from rankup.world.devices import cpu_affinity

LOOK_S = 1.0


@dataclass(frozen=True)
class Machine:
    """``cpus``: those that this process may run on; ``load``: how many of them others use.

    ``load`` is measured over a second before the first run, while the study itself does nothing. The system's load
    average would count what ran here a minute ago.
    """

    hostname: str
    system: str
    python: str
    cpu_count: int
    cpus: tuple[int, ...]
    load: float | None

    @classmethod
    def here(cls) -> Machine:
        cpus = tuple(cpu_affinity())
        used = psutil.cpu_percent(interval=LOOK_S, percpu=True)
        load = sum(used[cpu] for cpu in cpus if cpu < len(used)) / 100
        return cls(
            hostname=platform.node(),
            system=platform.platform(),
            python=platform.python_version(),
            cpu_count=os.cpu_count() or 1,
            cpus=cpus,
            load=load,
        )
