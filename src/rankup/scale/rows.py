"""From measured configurations to the rows of the table: times of each, and ratios against each baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rankup.scale.families import Family, label, measured
from rankup.scale.results import Configuration, StudyResults
from rankup.scale.stats import (
    ENOUGH_FOR_RATIO,
    Interval,
    Sample,
    median_interval,
    overlap,
    ratio_interval,
    ratio_range,
)


@dataclass(frozen=True)
class Row:
    """All repeats of one configuration. ``seconds`` of training; ``interval`` of their median, None if too few.

    ``devices`` are GPUs, or cores (processes × threads) on CPUs. ``rate``: samples per second, the median, None if
    nobody counted samples. ``accuracy``: the median, a share in [0, 1].
    """

    name: str
    strategy: str
    nodes: int
    processes: int
    threads: int
    devices: int
    device_type: str
    seconds: Sample
    interval: Interval | None
    rate: float | None
    accuracy: float | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Ratio:
    """One configuration against one baseline.

    In strong scaling ``speedup`` is time / time. In weak scaling it is rate / rate, because the work differs.
    ``efficiency`` is the speed-up / how many times the devices. ``range``: of all ratios of two runs; ``interval``: of
    the ratio of the medians (bootstrap, 95 %), None where the repeats do not suffice for it. ``within_noise``: the
    times of both overlap. ``unfair``: the comparison is refused, and printed because somebody insisted.
    """

    name: str
    baseline: str
    kind: str
    speedup: float
    range: Interval | None
    interval: Interval | None
    efficiency: float
    within_noise: bool | None
    unfair: bool = False

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def efficiency_of(self, speedup: float) -> float:
        return self.efficiency * speedup / self.speedup


def rows(study: StudyResults) -> list[Row]:
    """A row for each configuration that ran, in the order of the study."""
    return [_row(one, study) for one in measured(study)]


def _row(one: Configuration, study: StudyResults) -> Row:
    run, seconds = one.runs[0], [run.seconds for run in one.runs]
    accuracies = [run.accuracy for run in one.runs if run.accuracy is not None]
    return Row(
        name=label(one, study),
        strategy=run.strategy,
        nodes=run.nodes,
        processes=run.processes,
        threads=run.threads,
        devices=run.devices,
        device_type=run.device_type,
        seconds=Sample.of(seconds),
        interval=median_interval(seconds),
        # Not the median of the rates: of an even number of runs that would not belong to the median time.
        rate=1 / Sample.of(_seconds_per_sample(one)).median if all(run.samples for run in one.runs) else None,
        accuracy=Sample.of(accuracies).median if accuracies else None,
    )


def enough(family: Family, one: Configuration) -> bool:
    """Whether both sides have the repeats that a ratio requires."""
    return min(len(family.baseline.runs), len(one.runs)) >= ENOUGH_FOR_RATIO


def counted(family: Family, one: Configuration) -> bool:
    """Whether both sides tell what a ratio divides: weak scaling requires the samples of every run."""
    runs = [*family.baseline.runs, *one.runs]
    return family.study.scaling == "strong" or all(run.samples for run in runs)


def ratio(family: Family, one: Configuration, *, unfair: bool = False) -> Ratio:
    """``one`` against the baseline of ``family``, whether that is fair or not; both must be ``counted``."""
    slow, fast = _costs(family, family.baseline), _costs(family, one)
    before, after = Sample.of(slow), Sample.of(fast)
    speedup = before.median / after.median
    return Ratio(
        name=family.label(one),
        baseline=family.label(family.baseline),
        kind=family.kind,
        speedup=speedup,
        range=ratio_range(before, after),
        interval=ratio_interval(slow, fast),
        efficiency=speedup * family.baseline.runs[0].devices / one.runs[0].devices,
        within_noise=overlap(before, after),
        unfair=unfair,
    )


def _costs(family: Family, one: Configuration) -> Sequence[float]:
    """What each run cost: seconds for the same work, or seconds per sample where the work grows with the devices."""
    if family.study.scaling == "weak":
        return _seconds_per_sample(one)
    return [run.seconds for run in one.runs]


def _seconds_per_sample(one: Configuration) -> list[float]:
    return [run.seconds / run.samples for run in one.runs]
