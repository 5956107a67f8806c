"""What each rank and each node does now, in numbers: the rows of ``rankup top``. No I/O."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rankup.monitor.series import GpuPoint, NodeSeries, RankPoint, RankSeries, RunSeries, Series

WINDOW = 30.0  # seconds over which rates are computed
_STEPS = 3  # at least, if there are as many


@dataclass(frozen=True)
class Rates:
    """Of a rank over a window; None if no step was finished in it, or it is not told.

    ``step_s`` is a step's time, ``data_s`` what of it the rank waited for data, ``own_s`` what of it passed before the
    rank began to wait for others, with the data, ``samples_per_s`` this rank's.
    """

    steps: int = 0
    step_s: float | None = None
    data_s: float | None = None
    own_s: float | None = None
    samples_per_s: float | None = None
    cpu_percent: float | None = None  # of one core

    @property
    def data_share(self) -> float | None:
        return None if self.step_s is None or self.data_s is None else self.data_s / max(self.step_s, 1e-9)


def rates(series: Series[RankPoint], now: float, window: float = WINDOW) -> Rates:
    """If steps take long, the window is longer, so that it has some of them."""
    last = series.last(now)
    if last is None:
        return Rates()
    points = series.window(now - window, now)
    first = points[0] if points else last
    if last.steps - first.steps < _STEPS:
        earlier = series.window(now - 20 * window, now)
        enough = [one for one in earlier if one.steps <= last.steps - _STEPS]
        first = enough[-1] if enough else earlier[0] if earlier else last
    cpu = None
    base = points[0] if len(points) > 1 else first
    if base.cpu_s is not None and last.cpu_s is not None and last.time > base.time:
        cpu = 100 * max(0.0, last.cpu_s - base.cpu_s) / (last.time - base.time)
    steps, seconds = last.steps - first.steps, last.seconds - first.seconds
    if steps <= 0 or seconds <= 0:
        return Rates(cpu_percent=cpu)
    before = last.before_steps - first.before_steps
    return Rates(
        steps=steps,
        step_s=seconds / steps,
        data_s=max(0.0, last.data_s - first.data_s) / steps,
        own_s=(last.before_s - first.before_s) / before if before > 0 else None,
        samples_per_s=(last.samples - first.samples) / seconds,
        cpu_percent=cpu,
    )


def last_progress(series: Series[RankPoint], now: float) -> float:
    """When the rank was first seen at its last step; its first record, if nothing older is known."""
    points = series.window(-math.inf, now)
    first = len(points) - 1
    while first > 0 and points[first - 1].global_step == points[-1].global_step:
        first -= 1
    return points[first].time if points else now


@dataclass(frozen=True)
class RankRow:
    """One rank, or a GPU of a program whose ranks tell nothing (``rank`` None). Memory in bytes, ``data`` a share.

    ``utilization`` is that of the GPU in percent, or of the process on a CPU in percent of a core.
    """

    rank: int | None
    host: str
    gpu: int | None = None
    pid: int | None = None
    phase: str = ""
    phase_s: float | None = None
    silent_s: float | None = None  # since its last record
    global_step: int | None = None
    utilization: float | None = None
    memory: float | None = None
    memory_total: float | None = None
    power: float | None = None
    temperature: float | None = None
    step_s: float | None = None
    samples_per_s: float | None = None
    data: float | None = None
    own_s: float | None = None
    loss: float | None = None
    history: tuple[float | None, ...] = ()  # of ``utilization``


@dataclass(frozen=True)
class NodeRow:
    host: str
    silent_s: float
    cpu: float | None
    memory: float | None
    memory_total: float | None  # the job's limit, if it has one
    network: float | None
    disk_free: float | None
    disk_total: float | None
    gpus: int


def rank_rows(run: RunSeries, now: float, width: int = 20) -> list[RankRow]:
    """A row for each rank; without records of ranks for each GPU. ``width``: how many values of history."""
    ranks = run.current_ranks(now)
    if not ranks:
        return [
            _with_gpu(RankRow(None, node.host, silent_s=now - last.time), node, place, now, width)
            for node in sorted(run.nodes.values(), key=lambda one: one.host)
            if (last := node.series.last(now)) is not None
            for place in range(len(last.gpus))
        ]
    return [_rank_row(run, one, ranks, now, width) for one in ranks]


def _rank_row(
    run: RunSeries, one: RankSeries, ranks: Sequence[RankSeries], now: float, width: int
) -> RankRow:
    last = one.series.last(now)
    assert last is not None
    found = rates(one.series, now)
    if now - last_progress(one.series, now) > max(WINDOW, _STEPS * (found.step_s or 0.0)):
        found = Rates(samples_per_s=0.0, cpu_percent=found.cpu_percent)  # what was before is not now
    row = RankRow(
        one.rank,
        one.host,
        pid=one.pid,
        phase=last.phase,
        phase_s=last.phase_s + max(0.0, now - last.time),
        silent_s=max(0.0, now - last.time),
        global_step=last.global_step,
        memory=last.memory,
        step_s=found.step_s,
        samples_per_s=found.samples_per_s,
        data=found.data_share,
        own_s=found.own_s,
        loss=last.loss,
    )
    node, place = run.nodes.get(one.host), gpu_place(run, one, ranks, now)
    if node is not None and place is not None:
        return _with_gpu(row, node, place, now, width)
    if one.gpu is not None:  # its use is not known
        return replace(row, memory=None)
    total = None
    if node is not None and (sample := node.series.last(now)) is not None:
        total = sample.job_memory_limit or sample.memory_total
    history = _cpu_history(one.series, now, width)
    return replace(row, utilization=found.cpu_percent, memory_total=total, history=history)


def gpu_place(run: RunSeries, one: RankSeries, ranks: Sequence[RankSeries], now: float) -> int | None:
    """Which of the GPUs in its node's samples a rank uses; None on a CPU, or if the node tells none.

    By the UUID; if a version of torch or of the driver does not tell it, by the order of the ranks on the node.
    """
    node = run.nodes.get(one.host)
    sample = node.series.last(now) if node is not None else None
    if one.gpu is None or sample is None or not sample.gpus:
        return None
    names = [gpu.uuid for gpu in sample.gpus]
    if one.gpu in names:
        return names.index(one.gpu)
    here = [other.rank for other in ranks if other.host == one.host]
    place = here.index(one.rank) if one.rank in here else len(names)
    return place if place < len(names) and None in names else None


def _with_gpu(row: RankRow, node: NodeSeries, place: int, now: float, width: int) -> RankRow:
    last = node.series.last(now)
    if last is None or place >= len(last.gpus):
        return row
    gpu = last.gpus[place]
    history = gpu_history(node, place, now, width, lambda one: one.utilization)
    return replace(
        row,
        gpu=gpu.nvml_index,
        utilization=gpu.utilization,
        memory=gpu.memory,
        memory_total=gpu.memory_total,
        power=gpu.power,
        temperature=gpu.temperature,
        history=history,
    )


def gpu_history(
    node: NodeSeries, place: int, now: float, width: int, value: Callable[[GpuPoint], float | None]
) -> tuple[float | None, ...]:
    """The last ``width`` samples of a GPU."""
    points = node.series.window(now - 20 * WINDOW, now)[-width:]
    return tuple(value(one.gpus[place]) if place < len(one.gpus) else None for one in points)


def _cpu_history(series: Series[RankPoint], now: float, width: int) -> tuple[float | None, ...]:
    points = series.window(now - 20 * WINDOW, now)[-width - 1 :]
    return tuple(
        100 * max(0.0, b.cpu_s - a.cpu_s) / (b.time - a.time)
        if a.cpu_s is not None and b.cpu_s is not None
        else None
        for a, b in pairwise(points)
    )


def node_rows(run: RunSeries, now: float) -> list[NodeRow]:
    rows = []
    for node in sorted(run.nodes.values(), key=lambda one: one.host):
        last = node.series.last(now)
        if last is None:
            continue
        limited = last.job_memory_limit is not None and last.job_memory is not None
        rows.append(
            NodeRow(
                node.host,
                max(0.0, now - last.time),
                last.cpu,
                last.job_memory if limited else last.memory,
                last.job_memory_limit if limited else last.memory_total,
                last.network,
                last.disk_free,
                last.disk_total,
                len(last.gpus),
            )
        )
    return rows


def rate_history(run: RunSeries, now: float, width: int = 30) -> tuple[float | None, ...]:
    """Samples per second over all ranks, at the last ``width`` records of the first rank."""
    ranks = run.current_ranks(now)
    if not ranks:
        return ()
    points = ranks[0].series.window(now - 40 * WINDOW, now)[-width - 1 :]
    return tuple(len(ranks) * (b.samples - a.samples) / (b.time - a.time) for a, b in pairwise(points))
