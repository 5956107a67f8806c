"""The records of one run in memory: of each rank and each node the last quarter of an hour. No I/O.

Records may be of any age, cut, or of another version: what has another type than expected counts as not told.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

KEPT = 900.0  # seconds
_TRIM = 256  # points that may be too old before they are deleted

Record = Mapping[str, Any]


class RankPoint(NamedTuple):
    """A record of a rank; ``steps`` to ``before_s`` are sums since its loop began (docs/reference/records.md)."""

    time: float
    phase: str  # data, step, arrived, after-epoch, ended
    phase_s: float
    global_step: int
    steps: int
    seconds: float
    data_s: float
    samples: int
    before_steps: int
    before_s: float
    loss: float | None
    cpu_s: float | None
    memory: float | None


class GpuPoint(NamedTuple):
    nvml_index: int | None
    uuid: str | None
    utilization: float | None
    memory: float | None
    memory_total: float | None
    power: float | None
    temperature: float | None


class NodePoint(NamedTuple):
    """A sample of a node; ``network`` is in bytes a second, memory and disk in bytes."""

    time: float
    cpu: float | None
    memory: float | None
    memory_total: float | None
    job_memory: float | None
    job_memory_limit: float | None
    network: float | None
    disk_free: float | None
    disk_total: float | None
    gpus: tuple[GpuPoint, ...]


Point = TypeVar("Point", RankPoint, NodePoint)


class Series(Generic[Point]):
    """Points in the order of their times."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._times: list[float] = []

    def append(self, point: Point) -> None:
        """A point that is older than the last one (a clock that was set back) is left out."""
        if self._times and point.time <= self._times[-1]:
            return
        self.points.append(point)
        self._times.append(point.time)
        old = bisect_left(self._times, point.time - KEPT)
        if old > _TRIM:
            del self.points[:old], self._times[:old]

    def clear(self) -> None:
        self.points.clear()
        self._times.clear()

    def last(self, now: float = math.inf) -> Point | None:
        """The last point at ``now`` or before."""
        index = bisect_right(self._times, now)
        return self.points[index - 1] if index else None

    def window(self, begin: float, end: float) -> list[Point]:
        """The points within ``begin`` and ``end``, both included."""
        return self.points[bisect_left(self._times, begin) : bisect_right(self._times, end)]

    @property
    def first_time(self) -> float:
        return self._times[0] if self._times else math.inf


@dataclass
class RankSeries:
    """Of one rank in its newest attempt."""

    rank: int
    world_size: int = 1
    host: str = ""
    pid: int | None = None
    gpu: str | None = None
    training: str = ""
    series: Series[RankPoint] = field(default_factory=Series)

    def add(self, record: Record) -> None:
        """Another process, or another loop of it, begins anew."""
        point = rank_point(record)
        if point is None:
            return
        pid, last = whole(record.get("pid")), self.series.last()
        if last is not None and (pid != self.pid or point.steps < last.steps or last.phase == "ended"):
            self.series.clear()
        self.world_size = whole(record.get("world_size")) or 1
        self.host, self.pid = text(record.get("host")), pid
        self.gpu, self.training = text(record.get("gpu")) or None, text(record.get("training"))
        self.series.append(point)


@dataclass
class NodeSeries:
    """Of one node."""

    host: str
    series: Series[NodePoint] = field(default_factory=Series)

    def add(self, record: Record) -> None:
        last = self.series.last()
        point = node_point(record, last.time if last is not None else None)
        if point is not None:
            self.series.append(point)


@dataclass
class RunSeries:
    """All of a run. ``steps``: the newest step record, as ``rankup status`` shows it; ``facts``: what is trained."""

    ranks: dict[int, RankSeries] = field(default_factory=dict)
    nodes: dict[str, NodeSeries] = field(default_factory=dict)
    step: Record | None = None
    facts: Record = field(default_factory=dict)
    began: float | None = None  # the newest attempt's loop, in epoch seconds

    def add_rank(self, record: Record) -> None:
        rank = whole(record.get("rank"))
        if record.get("kind") == "rank" and rank is not None and rank >= 0:
            self.ranks.setdefault(rank, RankSeries(rank)).add(record)

    def add_node(self, record: Record) -> None:
        host = text(record.get("host"))
        if record.get("kind") == "sample" and host:
            self.nodes.setdefault(host, NodeSeries(host)).add(record)

    def add_step(self, record: Record) -> None:
        kind = record.get("kind")
        if kind == "begin":
            facts = record.get("facts")
            self.facts = facts if isinstance(facts, dict) else {}
            self.began, self.step = number(record.get("time")), None
        elif kind == "step":
            self.step = record

    def current_ranks(self, now: float = math.inf) -> list[RankSeries]:
        """The ranks of the newest attempt, in order: an earlier one may have had more of them."""
        told = [(last.time, one) for one in self.ranks.values() if (last := one.series.last(now)) is not None]
        if not told:
            return []
        world_size = max(told, key=lambda pair: pair[0])[1].world_size
        return sorted((one for _, one in told if one.rank < world_size), key=lambda one: one.rank)

    def on_gpus(self) -> bool:
        """Whether the run uses GPUs."""
        if self.ranks:
            return any(one.gpu is not None for one in self.ranks.values())
        lasts = (node.series.last() for node in self.nodes.values())
        return any(last is not None and last.gpus for last in lasts)

    def times(self) -> tuple[float, float] | None:
        """(first, last) time of what is known."""
        all_series: list[Series[Any]] = [one.series for one in self.ranks.values()]
        all_series += [one.series for one in self.nodes.values()]
        lasts = [last.time for one in all_series if (last := one.last()) is not None]
        return (min(one.first_time for one in all_series), max(lasts)) if lasts else None


def rank_point(record: Record) -> RankPoint | None:
    time, phase = number(record.get("time")), record.get("phase")
    counts = [whole(record.get(name)) for name in ("global_step", "steps", "samples", "before_steps")]
    sums = [number(record.get(name)) for name in ("phase_s", "seconds", "data_s", "before_s")]
    if time is None or not isinstance(phase, str) or None in counts or None in sums:
        return None
    global_step, steps, samples, before_steps = (one or 0 for one in counts)
    phase_s, seconds, data_s, before_s = (one or 0.0 for one in sums)
    loss, cpu_s, memory = (number(record.get(name)) for name in ("loss", "cpu_s", "memory_bytes"))
    return RankPoint(
        *(time, phase, phase_s, global_step, steps, seconds, data_s, samples),
        *(before_steps, before_s, loss, cpu_s, memory),
    )


def node_point(record: Record, before: float | None) -> NodePoint | None:
    """``before``: the time of the sample before, since which the network's bytes are counted."""
    time = number(record.get("time"))
    if time is None:
        return None
    sent, received = number(record.get("network_sent")), number(record.get("network_received"))
    network = None
    if sent is not None and received is not None and before is not None and time > before:
        network = (sent + received) / (time - before)
    gpus = record.get("gpus")
    return NodePoint(
        time,
        number(record.get("cpu_percent")),
        number(record.get("memory_bytes")),
        number(record.get("memory_total")),
        number(record.get("job_memory")),
        number(record.get("job_memory_limit")),
        network,
        number(record.get("disk_free")),
        number(record.get("disk_total")),
        tuple(gpu_point(one) for one in gpus if isinstance(one, dict)) if isinstance(gpus, list) else (),
    )


def gpu_point(record: Record) -> GpuPoint:
    names = ("utilization", "memory_bytes", "memory_total", "power_w", "temperature_c")
    values = [number(record.get(name)) for name in names]
    return GpuPoint(whole(record.get("index")), text(record.get("uuid")) or None, *values)


def number(value: Any) -> float | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(value: Any) -> str:
    """Printable text; "" for anything else."""
    if not isinstance(value, str):
        return ""
    return value if value.isprintable() else "".join(one for one in value if one.isprintable())
