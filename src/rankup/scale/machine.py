"""What the times of a study depend on besides the work: where it ran, on how many CPUs, and how busy they were."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psutil

from rankup.core import shell
from rankup.errors import RankupError
from rankup.world.devices import cpu_affinity

LOOK_S = 1.0


@dataclass(frozen=True)
class Machine:
    """``cpus``: those that this process may run on; ``load``: how many of them others use.

    ``load`` is measured over a second before the first run, while the study itself does nothing. The system's load
    average would count what ran here a minute ago.
    """

    hostname: str
    cpu: str
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
            cpu=_cpu_name(),
            system=platform.platform(),
            python=platform.python_version(),
            cpu_count=os.cpu_count() or 1,
            cpus=cpus,
            load=load,
        )


def provenance(folder: Path, words: Sequence[str]) -> dict[str, str]:
    """When a study began, the command that began it, and the commit that ``folder`` is at; "" if it is at none."""
    commit = ""
    try:
        found = shell.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"], timeout=10
        )
        commit = found.out.strip() if found.code == 0 else ""
    except (RankupError, OSError):  # no git here
        pass
    return {
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": shell.quote(["rankup", *words]),
        "commit": commit,
    }


def _cpu_name() -> str:
    """As the processor calls itself, on Linux; elsewhere its architecture."""
    try:
        named = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        named = None
    return named[1].strip() if named else platform.processor() or platform.machine()
