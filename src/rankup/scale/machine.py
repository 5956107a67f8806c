"""What the times of a study depend on besides the work: where it ran, on how many CPUs, and how busy they were."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

from rankup.world.devices import cpu_affinity


@dataclass(frozen=True)
class Machine:
    """``cpus``: those that this process may run on; ``load``: others' runnable processes, averaged over a minute.

    ``load`` is taken before the first run, and None where the system does not tell.
    """

    hostname: str
    system: str
    python: str
    cpu_count: int
    cpus: tuple[int, ...]
    load: float | None

    @classmethod
    def here(cls) -> Machine:
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        return cls(
            hostname=platform.node(),
            system=platform.platform(),
            python=platform.python_version(),
            cpu_count=os.cpu_count() or 1,
            cpus=tuple(cpu_affinity()),
            load=load,
        )
