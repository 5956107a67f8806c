"""From comparable runs to the rows of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rankup.scale.measured import Measured
from rankup.scale.stats import Sample, overlap, ratio_range


@dataclass(frozen=True)
class Row:
    """All repeats of one version. ``seconds`` of training; ``accuracy`` is the median, a share in [0, 1].

    ``cores`` is processes × threads on a CPU, processes (so GPUs) elsewhere. ``speedup``, its range and ``efficiency``
    are against the first row; ``within_noise`` says whether the times overlap with that row's, None for the row
    itself and where single runs do not tell.
    """

    version: str
    processes: int
    nodes: int
    threads: int
    cores: int
    on_cpu: bool
    seconds: Sample
    accuracy: float
    speedup: float
    speedup_range: tuple[float, float] | None
    efficiency: float
    within_noise: bool | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare(runs: Sequence[Measured]) -> list[Row]:
    """One row per number of processes, the fewest first: they are the baseline. ``runs`` did equal work."""
    groups = [
        [run for run in runs if run.turn.processes == processes]
        for processes in sorted({run.turn.processes for run in runs})
    ]
    return [_row(group, groups[0]) for group in groups]


def _row(group: Sequence[Measured], first: Sequence[Measured]) -> Row:
    one, itself = group[0], group is first
    seconds = Sample.of([run.seconds for run in group])
    baseline = Sample.of([run.seconds for run in first])
    speedup = baseline.median / seconds.median
    return Row(
        version=version_of(one),
        processes=one.processes,
        nodes=one.nodes,
        threads=one.threads,
        cores=_cores(one),
        on_cpu=one.on_cpu,
        seconds=seconds,
        accuracy=Sample.of([run.accuracy for run in group]).median,
        speedup=speedup,
        speedup_range=None if itself else ratio_range(baseline, seconds),
        efficiency=speedup * _cores(first[0]) / _cores(one),
        within_noise=None if itself else overlap(baseline, seconds),
    )


def version_of(run: Measured) -> str:
    """A single process trains the bare model; several are always DDP, so far."""
    where = f", {run.nodes} nodes" if run.nodes > 1 else ""
    return ("plain" if run.processes == 1 else "ddp") + where


def _cores(run: Measured) -> int:
    return run.processes * run.threads if run.on_cpu else run.processes
