"""CPU, memory and network of this node, between one reading and the next."""

from __future__ import annotations

import os
import sys

import psutil

INTERFACES = "/sys/class/net"
_IDLE = slice(3, 5)  # of a line of /proc/stat: idle, and waiting for a disk
_ALL = slice(0, 8)  # the rest (guests) is part of user time


class Counters:
    """``read`` tells what happened since the reading before; the first one since this was made.

    A value that the system does not tell is None.
    """

    def __init__(self) -> None:
        self._cores = job_cores()
        self._cpu = _cpu_seconds(self._cores)
        self._network = _network_bytes()

    def read(self) -> dict[str, float | int | None]:
        """``cpu_percent`` of all cores that this process may use; ``memory_bytes``, those in use on the node.

        ``network_sent`` and ``network_received``: bytes through the node's interfaces, but for the loopback.
        """
        before, self._cpu = self._cpu, _cpu_seconds(self._cores)
        sent, received = self._network_since()
        return {
            "cpu_percent": _percent(before, self._cpu),
            "memory_bytes": _memory_bytes(),
            "network_sent": sent,
            "network_received": received,
        }

    def _network_since(self) -> tuple[int | None, int | None]:
        before, self._network = self._network, _network_bytes()
        both = before.keys() & self._network.keys()
        if not both:
            return None, None
        # A counter that has become smaller has begun anew.
        grown = [
            [max(0, new - old) for old, new in zip(before[name], self._network[name], strict=True)]
            for name in both
        ]
        return sum(sent for sent, _ in grown), sum(received for _, received in grown)


def job_cores() -> set[int]:
    """The cores on which this process may run, which are those of the job; empty if the system does not tell."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def _cpu_seconds(cores: set[int]) -> tuple[float, float] | None:
    """(busy, all) time of the cores, in a unit of the system's."""
    try:
        if sys.platform != "linux":
            told = psutil.cpu_times()
            return sum(told) - told.idle, sum(told)
        # Not psutil's list per core: it leaves out cores that are offline, and so loses their numbers.
        with open(f"{psutil.PROCFS_PATH}/stat", "rb") as file:
            return parse_cpu_lines(file.read().decode(), cores)
    except (OSError, ValueError):
        return None


def parse_cpu_lines(text: str, cores: set[int]) -> tuple[float, float]:
    """(busy, all) of ``cores`` in the text of ``/proc/stat``; if it has none of these, of all.

    Containers may number the cores that they show anew (lxcfs).
    """
    wanted = {f"cpu{core}" for core in cores}
    lines = [line.split() for line in text.splitlines() if line.startswith("cpu")]
    ours = [words for words in lines if words[0] in wanted] or lines[:1]
    times = [[int(word) for word in words[1:]] for words in ours]
    idle = sum(sum(each[_IDLE]) for each in times)
    total = sum(sum(each[_ALL]) for each in times)
    return total - idle, total


def _percent(before: tuple[float, float] | None, now: tuple[float, float] | None) -> float | None:
    if before is None or now is None or now[1] <= before[1]:
        return None
    return round(min(100.0, max(0.0, 100 * (now[0] - before[0]) / (now[1] - before[1]))), 1)


def _memory_bytes() -> int | None:
    """In use on the node, without caches that can be dropped.

    Of the whole node: a sum over the job's processes would count what data-loader workers share once for each.
    """
    try:
        memory = psutil.virtual_memory()
    except (OSError, psutil.Error, KeyError, ValueError):
        return None
    return int(memory.total - memory.available)


def _network_bytes() -> dict[str, tuple[int, int]]:
    """(sent, received) of each interface; of the hardware ones alone, if there are any.

    A bridge or a bond would count the bytes of the interfaces below it again.
    """
    try:
        told = psutil.net_io_counters(pernic=True, nowrap=False)
    except (OSError, psutil.Error, RuntimeError, ValueError):
        return {}
    counted = {
        name: (each.bytes_sent, each.bytes_recv)
        for name, each in told.items()
        if name != "lo" and not name.startswith("lo0")
    }
    hardware = {name: both for name, both in counted.items() if os.path.exists(f"{INTERFACES}/{name}/device")}
    return hardware or counted
