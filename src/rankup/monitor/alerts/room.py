"""Memory close to its limit, and a disk that will be full soon."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.core.units import duration
from rankup.monitor.alerts.alert import LIMITS, Symptom
from rankup.monitor.rows import gpu_place
from rankup.monitor.series import NodeSeries, RunSeries

_MEMORY, _DISK = LIMITS["memory-near-limit"], LIMITS["disk-full-soon"]
_GIB = 1 << 30


def memory_near_limit(run: RunSeries, now: float) -> Iterator[Symptom]:
    ranks = run.current_ranks(now)
    users = {
        (one.host, place): one.rank for one in ranks if (place := gpu_place(run, one, ranks, now)) is not None
    }
    for node in run.nodes.values():
        last = node.series.last(now)
        if last is None or now - last.time > 60:
            continue
        for place, gpu in enumerate(last.gpus):
            if gpu.memory is None or not gpu.memory_total or gpu.memory < _MEMORY["gpu"] * gpu.memory_total:
                continue
            rank = users.get((node.host, place))
            of = f" (rank {rank})" if rank is not None else ""
            yield Symptom(
                "memory-near-limit",
                f"{node.host} GPU {place}",
                f"GPU {gpu.nvml_index} of {node.host}{of} has {_of(gpu.memory, gpu.memory_total)} in use",
                "a smaller batch per rank with accumulate=, bf16, activation checkpointing, or fsdp",
                ranks=() if rank is None else (rank,),
            )
        used, limit, whose = last.memory, last.memory_total, "the node has"
        if last.job_memory is not None and last.job_memory_limit:
            used, limit, whose = last.job_memory, last.job_memory_limit, "the job has (its limit there)"
        if used is not None and limit and used >= _MEMORY["node"] * limit:
            yield Symptom(
                "memory-near-limit",
                node.host,
                f"memory of {node.host}: {whose} {_of(used, limit)} in use",
                "the kernel will kill a process: request more (--mem), fewer workers of the data loader, "
                "or look for what keeps tensors",
                ranks=tuple(one.rank for one in ranks if one.host == node.host),
                hold=5.0,  # the kernel does not wait
            )


def disk_full_soon(run: RunSeries, now: float) -> Iterator[Symptom]:
    """Of the file system of the run directory, which all nodes share; each may tell its own if they do not."""
    for node in run.nodes.values():
        last = node.series.last(now)
        if last is None or last.disk_free is None or not last.disk_total or now - last.time > 60:
            continue
        left = _seconds_left(node, now)
        if last.disk_free < _DISK["least"]:
            message = f"the disk of the run directory has {last.disk_free / _GIB:.2f} GiB left"
        elif left is not None and left < _DISK["soon"]:
            message = (
                f"the disk of the run directory is full in {duration(left)} if it goes on like this: "
                f"{last.disk_free / _GIB:.1f} GiB left"
            )
        else:
            continue
        yield Symptom(
            "disk-full-soon",
            "run",
            message,
            "delete old snapshots (rankup snapshots list), keep fewer (Retention(last=2)), or move the run; "
            "quotas are not seen here",
        )
        return


def _seconds_left(node: NodeSeries, now: float) -> float | None:
    """Until the disk is full, at the pace of the last minutes; None if it does not fill."""
    points = [one for one in node.series.window(now - _DISK["window"], now) if one.disk_free is not None]
    if len(points) < 3 or points[-1].time - points[0].time < _DISK["window_least"]:
        return None
    first, last = points[0], points[-1]
    assert first.disk_free is not None and last.disk_free is not None
    fallen = first.disk_free - last.disk_free
    # Deleted files would make the pace of the rest look slower, and one big file faster: both halves must fall.
    middle = points[len(points) // 2]
    assert middle.disk_free is not None
    halves = (first.disk_free - middle.disk_free, middle.disk_free - last.disk_free)
    if fallen < _DISK["fall"] * (last.disk_total or 0.0) or min(halves) < fallen / 5:
        return None
    return last.disk_free * (last.time - first.time) / fallen


def _of(used: float, limit: float) -> str:
    return f"{used / _GIB:.1f} of {limit / _GIB:.1f} GiB"
