"""Who this machine is, and its limits."""

from __future__ import annotations

import os
import platform
import resource
import socket
from pathlib import Path
from typing import Any

from rankup.doctor.plan import Plan
from rankup.world.devices import cpu_affinity


def probe(plan: Plan, node: int) -> dict[str, Any]:
    return {
        "hostname": socket.gethostname(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "cpus": os.cpu_count() or 1,
        "affinity": cpu_affinity(),
        "numa": numa_nodes(),
        "open_files": _limit(resource.RLIMIT_NOFILE),
        "locked_memory": _limit(resource.RLIMIT_MEMLOCK),
        "umask": _umask(),
        "shm": _room("/dev/shm"),
        "infiniband": sorted(path.name for path in Path("/sys/class/infiniband").glob("*")),
        "container": _container(),
    }


def numa_nodes() -> dict[str, str]:
    """NUMA node → its CPUs, as the kernel lists them: ``0-15,32-47``."""
    found = {}
    for path in sorted(Path("/sys/devices/system/node").glob("node[0-9]*/cpulist")):
        found[path.parent.name.removeprefix("node")] = path.read_text().strip()
    return found


def _limit(kind: int) -> list[int | None]:
    """Soft and hard limit; None for none."""
    return [None if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(kind)]


def _umask() -> int | None:
    """Read without setting it: that would change it for all threads for a moment."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1], 8) for line in lines if line.startswith("Umask:")), None)


def _room(folder: str) -> dict[str, int] | None:
    try:
        stat = os.statvfs(folder)
    except OSError:
        return None
    return {"bytes": stat.f_blocks * stat.f_frsize, "free": stat.f_bavail * stat.f_frsize}


def _container() -> str:
    for name in ("APPTAINER_NAME", "SINGULARITY_NAME"):
        if os.environ.get(name):
            return os.environ[name]
    return "docker" if Path("/.dockerenv").exists() else ""
