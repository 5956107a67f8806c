"""What can run out on this node: the memory of the job, and the disk of its run directory."""

from __future__ import annotations

import os

import psutil

CGROUPS = "/sys/fs/cgroup"
# A limit of this size or more is none: version 1 writes a number of pages near 2^63.
_NO_LIMIT = 1 << 60


class Limits:
    """``read`` tells them; a value that the system does not tell is None."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._groups = memory_groups()
        try:
            self._total: int | None = int(psutil.virtual_memory().total)
        except (OSError, psutil.Error, KeyError, ValueError):
            self._total = None

    def read(self) -> dict[str, int | None]:
        """``memory_total`` of the node; ``job_memory`` and ``job_memory_limit``: in use by the job (its control group,
        without files that can be dropped) and the most that it may use, None without a limit; ``disk_free`` and
        ``disk_total`` of the file system of the run directory."""
        used, limit = self._tightest()
        free, total = _disk(self._folder)
        return {
            "memory_total": self._total,
            "job_memory": used,
            "job_memory_limit": limit,
            "disk_free": free,
            "disk_total": total,
        }

    def _tightest(self) -> tuple[int | None, int | None]:
        """Of the groups with a limit, the one with the least room."""
        found = [both for group in self._groups if (both := group_memory(group)) is not None]
        return min(found, key=lambda both: both[1] - both[0], default=(None, None))


def memory_groups() -> list[str]:
    """The folders of this process's control group and of those above it: a job's limit is above its steps."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return []
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if controllers == "" or "memory" in controllers.split(","):
            root = f"{CGROUPS}/memory" if controllers else CGROUPS
            parts = [part for part in path.split("/") if part]
            folders = [
                f"{root}/{'/'.join(parts[:length])}".rstrip("/") for length in range(len(parts), -1, -1)
            ]
            return [folder for folder in folders if group_memory(folder) is not None]
    return []


def group_memory(folder: str) -> tuple[int, int] | None:
    """(used, limit) in bytes of a control group, of version 2 or 1; None without a limit."""
    for used, limit, cache in (
        ("memory.current", "memory.max", "inactive_file"),
        ("memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file"),
    ):
        try:
            most = int(_text(f"{folder}/{limit}"))
            if most >= _NO_LIMIT:
                return None
            droppable = next(
                (
                    int(line.split()[1])
                    for line in _text(f"{folder}/memory.stat").splitlines()
                    if line.startswith(cache + " ")
                ),
                0,
            )
            return max(0, int(_text(f"{folder}/{used}")) - droppable), most
        except (OSError, ValueError):  # the other version, or "max"
            continue
    return None


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _disk(folder: str) -> tuple[int | None, int | None]:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None, None
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
