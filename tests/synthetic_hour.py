"""An hour of records of a training on two nodes with four GPUs each, second by second; healthy, unless a test plants a
cause."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rankup.monitor.alerts.alert import Alert
from rankup.monitor.alerts.watch import AlertWatch
from rankup.monitor.series import RunSeries

GIB = 1 << 30
BEGIN = 1_800_000_000.0
STEP, BATCH = 0.4, 32
EPOCH, EVALUATION, COMPILING = 600, 45, 70  # seconds


@dataclass
class Moment:
    """What happens in one second; a planted cause changes it. Values by rank."""

    second: int
    steps: float  # that all ranks do in this second
    own: dict[int, float]  # seconds of a step before the reduction, with the data
    data: dict[int, float]
    phase: dict[int, str]
    use: dict[int, float]  # percent
    gpu_memory: dict[int, float]
    job_memory: dict[str, float]
    disk_free: float
    silent: set[int] = field(default_factory=set)
    behind: set[int] = field(default_factory=set)  # by one step
    unused_gpus: int = 0


Plant = Callable[[Moment], None]


def host_of(rank: int) -> str:
    return f"n{rank // 4 + 1}"


def healthy(second: int, world: int, noise: random.Random) -> Moment:
    ranks = range(world)
    in_epoch = (second - COMPILING) % EPOCH
    compiling, evaluating = second < COMPILING, second > COMPILING + 60 and in_epoch < EVALUATION
    saving = second > 300 and second % 600 < 20
    workers_start = EVALUATION <= in_epoch < EVALUATION + 6
    steps = 0.0 if compiling or evaluating or saving else 1 / STEP * (0.3 if workers_start else 1.0)
    data = {r: STEP * (0.7 if workers_start else noise.uniform(0.01, 0.05)) for r in ranks}
    return Moment(
        second,
        steps,
        {r: STEP * noise.uniform(0.8, 0.88) + (data[r] if workers_start else 0.0) for r in ranks},
        data,
        dict.fromkeys(ranks, "step" if compiling or saving else "after-epoch" if evaluating else "arrived"),
        {r: 0.0 if compiling or saving else noise.uniform(*((50, 70) if evaluating else (88, 100))) for r in ranks},
        {r: GIB * (74 + noise.uniform(0, 1)) for r in ranks},
        {f"n{n}": GIB * (150 + noise.uniform(-5, 5)) for n in (1, 2)},
        GIB * (900 - 5 * (second // 600)),
    )  # fmt: skip


def moments(plant: Plant | None = None, world: int = 8, seconds: int = 3600) -> Iterator[Moment]:
    noise = random.Random(7)
    for second in range(seconds):
        moment = healthy(second, world, noise)
        if plant is not None:
            plant(moment)
        yield moment


class Records:
    """Moments as the records that ranks and samplers write."""

    def __init__(self, world: int, gpus: bool = True, every: int = 1) -> None:
        self.run = RunSeries()
        self.run.add_step({"kind": "begin", "time": BEGIN, "facts": {"strategy": "ddp"}})
        self._world, self._gpus, self._every = world, gpus, every
        self._sums = {r: {"steps": 0.0, "seconds": 0.0, "data_s": 0.0, "before_s": 0.0} for r in range(world)}
        self._since: dict[int, tuple[str, int]] = {}

    def add(self, now: Moment) -> float:
        time = BEGIN + now.second
        for rank in range(self._world):
            sums = self._sums[rank]
            sums["steps"] += now.steps
            sums["seconds"] += 1.0 if now.steps else 0.0
            sums["data_s"] += now.steps * now.data[rank]
            sums["before_s"] += now.steps * now.own[rank]
            if self._since.get(rank, ("", 0))[0] != now.phase[rank] or now.steps:
                self._since[rank] = now.phase[rank], now.second
            if rank not in now.silent and (now.second + rank) % self._every == 0:
                self.run.add_rank(self._rank_record(now, rank, time))
        for host in sorted({host_of(rank) for rank in range(self._world)}):
            if now.second % self._every == 0:
                self.run.add_node(self._sample(now, host, time))
        return time

    def _rank_record(self, now: Moment, rank: int, time: float) -> dict[str, Any]:
        sums = self._sums[rank]
        steps = int(sums["steps"]) - (rank in now.behind)
        return {
            **{"kind": "rank", "time": time, "rank": rank, "world_size": self._world, "host": host_of(rank)},
            **{"pid": 100 + rank, "gpu": f"GPU-{rank}" if self._gpus else None, "training": ""},
            **{"phase": now.phase[rank], "phase_s": float(now.second - self._since[rank][1])},
            **{"global_step": steps, "steps": steps, "seconds": sums["seconds"], "data_s": sums["data_s"]},
            **{"samples": BATCH * steps, "before_steps": steps, "before_s": sums["before_s"], "loss": 1.0},
            **{"cpu_s": 0.9 * now.second, "memory_bytes": 4 * GIB},
        }

    def _sample(self, now: Moment, host: str, time: float) -> dict[str, Any]:
        ranks = [rank for rank in range(self._world) if host_of(rank) == host]
        gpus = [
            {
                **{"index": place, "uuid": f"GPU-{rank}", "utilization": now.use[rank]},
                **{"memory_bytes": now.gpu_memory[rank], "memory_total": 80 * GIB},
                **{"power_w": 400.0, "temperature_c": 60},
            }
            for place, rank in enumerate(ranks)
        ]
        gpus += [
            {"index": len(ranks) + extra, "uuid": f"GPU-x{extra}", "utilization": 0}
            for extra in range(now.unused_gpus)
        ]
        return {
            **{"kind": "sample", "time": time, "host": host, "cpu_percent": 40.0, "memory_bytes": 160 * GIB},
            **{"memory_total": 512 * GIB, "job_memory": now.job_memory[host], "job_memory_limit": 256 * GIB},
            **{"disk_free": now.disk_free, "disk_total": 1000 * GIB},
            **{"network_sent": 1e6, "network_received": 1e6, "gpus": gpus if self._gpus else []},
        }


def alerts_of(
    plant: Plant | None = None, *, world: int = 8, seconds: int = 3600, every: int = 1, gpus: bool = True
) -> dict[str, list[Alert]]:
    """All alerts of the hour, those that are over too, as they were last told; by code."""
    records, watch = Records(world, gpus, every), AlertWatch()
    told: dict[tuple[str, float], Alert] = {}
    for moment in moments(plant, world, seconds):
        time = records.add(moment)
        if moment.second % 5 == 4:
            for alert in watch.look(records.run, time):
                told[alert.finding.code, alert.since] = alert
    codes: dict[str, list[Alert]] = {}
    for (code, _), alert in sorted(told.items()):
        codes.setdefault(code, []).append(alert)
    return codes
