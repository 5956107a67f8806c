"""What the report says of each configuration: the place where statistics come in.

Figures, tables and sentences read ``ReportRow`` alone. ``rows_of`` fills it with medians and ranges of a study; who
knows speed-ups, intervals and refusals passes rows that have them, and the findings that go with them.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rankup.scale.report.text import plain, plural
from rankup.scale.results import PARTS, Configuration, Measured, StudyResults

SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class Spread:
    """A median, and how far the values lie apart; ``low`` = ``high`` = ``median`` for a single value."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    @classmethod
    def around(cls, median: float, low: float, high: float) -> Spread:
        """Of numbers that were computed in different ways: rounding may put the median a last digit outside, and an
        error bar must not be negative."""
        return cls(median, min(low, median), max(high, median))

    @classmethod
    def of_some(cls, values: Sequence[float | None]) -> Spread | None:
        """None if one of the values is unknown, or there are none."""
        known = [value for value in values if value is not None]
        return cls.of(known) if known and len(known) == len(values) else None


@dataclass(frozen=True)
class ReportRow:
    """One configuration that ran. ``name`` is its own in the report; rows of one ``series`` differ in devices alone.

    ``speedup`` and ``efficiency`` are None where nobody compared, or the comparison was refused. ``breakdown``:
    seconds of a step by part, medians over the repeats. ``spread``: what low and high of the values are. ``unfair``:
    the comparison was refused, and its ratios are there because somebody insisted.
    """

    name: str
    series: str
    strategy: str
    device_type: str
    devices: int
    nodes: int
    processes: int
    threads: int
    repeats: int
    seconds: Spread
    rate: Spread
    accuracy: Spread | None = None
    loss: Spread | None = None
    speedup: Spread | None = None
    efficiency: Spread | None = None
    breakdown: Mapping[str, float] = field(default_factory=dict)
    spread: str = "min–max"
    unfair: bool = False

    @property
    def device_hours(self) -> float:
        return self.devices * self.seconds.median / SECONDS_PER_HOUR

    @property
    def count(self) -> str:
        """``1 process``, ``2 processes``, ``2 nodes × 4 processes``."""
        return count_of(self.nodes, self.processes)


def count_of(nodes: int, processes: int) -> str:
    each = plural(processes // nodes, "process")
    return f"{nodes} nodes × {each}" if nodes > 1 else each


def rows_of(results: StudyResults) -> list[ReportRow]:
    """One row per configuration that ran, the fewest devices first; medians and ranges, no ratios."""
    return by_devices(rows_as_measured(results))


def rows_as_measured(results: StudyResults) -> list[ReportRow]:
    """The same in the order of the study, which is that of ``rankup.scale.rows``."""
    ran = [one for one in results.configurations if one.runs]
    told = zip(ran, names(ran, results.scaling), strict=True)
    return [_row(one, name, series) for one, (name, series) in told]


def by_devices(rows: Sequence[ReportRow]) -> list[ReportRow]:
    return sorted(rows, key=lambda row: (row.devices, row.processes))


def names(configurations: Sequence[Configuration], scaling: str) -> list[tuple[str, str]]:
    """(name, series) of configurations that ran: by what ran, as far as it differs; each name once."""
    facts = [_facts(one.runs[0]) for one in configurations]
    if scaling == "weak":  # the global batch grows with the processes, within a series
        facts = [{**one, "batch": ""} for one in facts]
    differs = [key for key in facts[0] if len({one[key] for one in facts}) > 1] if facts else []
    found: list[tuple[str, str]] = []
    for one, fact in zip(configurations, facts, strict=True):
        series = ", ".join(fact[key] for key in differs if fact[key])
        run = one.runs[0]
        count = count_of(run.nodes, run.processes)
        if "threads" in differs and fact["threads"]:
            count += f" × {plural(run.threads, 'thread')}"
        name = ", ".join([count, *(fact[key] for key in differs if fact[key] and key != "threads")])
        found.append((name, series))
    for index, (name, series) in enumerate(found):
        if sum(other == name for other, _ in found) > 1:
            asked = ", ".join(f"{key}={value}" for key, value in configurations[index].asked.items())
            found[index] = (plain(f"{name} ({asked})" if asked else f"{name} ({index + 1})"), series)
    return found


def _facts(run: Measured) -> dict[str, str]:
    """What makes a series: everything but the number of processes."""
    cpu = run.device_type != "cuda"
    batch = run.facts.get("global_batch")
    return {
        "strategy": plain(run.strategy),
        "threads": plural(run.threads, "thread") + " each" if cpu else "",
        "precision": plain(run.facts.get("precision") or ""),
        "device": plain(run.device_type),
        "batch": f"batch {plain(batch)}" if batch else "",
    }


def _row(configuration: Configuration, name: str, series: str) -> ReportRow:
    runs = configuration.runs
    one = runs[0]
    measured = [run.breakdown for run in runs if run.breakdown]
    return ReportRow(
        name=name,
        series=series,
        strategy=plain(one.strategy),
        device_type=one.device_type,
        devices=one.devices,
        nodes=one.nodes,
        processes=one.processes,
        threads=one.threads,
        repeats=len(runs),
        seconds=Spread.of([run.seconds for run in runs]),
        rate=_rate(runs),
        accuracy=Spread.of_some([run.accuracy for run in runs]),
        loss=Spread.of_some([run.loss for run in runs]),
        breakdown={part: statistics.median(each.get(part, 0.0) for each in measured) for part in PARTS}
        if measured
        else {},
    )


def _rate(runs: Sequence[Measured]) -> Spread:
    """Samples per second. Its median belongs to the median time, also of an even number of runs."""
    rates = [run.rate for run in runs]
    median = 1 / statistics.median(run.seconds / run.samples for run in runs) if all(rates) else 0.0
    return Spread.around(median, min(rates), max(rates))


def device_word(rows: Sequence[ReportRow]) -> str:
    """What the devices of all rows are: ``GPUs``, ``CPU cores``, or ``devices`` if they differ."""
    kinds = {row.device_type for row in rows}
    return (
        {"cuda": "GPUs", "cpu": "CPU cores"}.get(next(iter(kinds)), "devices")
        if len(kinds) == 1
        else "devices"
    )


def hour_word(rows: Sequence[ReportRow]) -> str:
    """What ``device_hours`` of these rows are called."""
    return {"GPUs": "GPU-hours", "CPU cores": "core-hours"}.get(device_word(rows), "device-hours")
