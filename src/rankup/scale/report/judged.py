"""Rows of the report with the ratios that the study's judgement allows."""

from __future__ import annotations

from dataclasses import replace

from rankup.scale.report.rows import ReportRow, Spread, by_devices, rows_as_measured
from rankup.scale.rows import Ratio
from rankup.scale.summary import StudyReport


def judged_rows(made: StudyReport) -> list[ReportRow]:
    """A row per configuration that ran; speed-up and efficiency only where the comparison was not refused."""
    ratios: dict[str, Ratio] = {}
    baselines: set[str] = set()
    for one in made.ratios:  # the first baseline is the one to read by
        if one.name not in ratios and one.name not in baselines:
            ratios[one.name] = one
            baselines.add(one.baseline)
    rows = []
    for row, judged in zip(rows_as_measured(made.study), made.rows, strict=True):
        ratio = ratios.get(judged.name)
        if ratio is None:
            itself = Spread(1.0, 1.0, 1.0) if judged.name in baselines else None
            rows.append(replace(row, speedup=itself, efficiency=itself))
            continue
        between = ratio.interval or ratio.range or (ratio.speedup, ratio.speedup)
        speedup = Spread.around(ratio.speedup, *between)
        efficiency = Spread.around(*(ratio.efficiency_of(value) for value in (ratio.speedup, *between)))
        words = "95 % interval" if ratio.interval else "min–max"
        rows.append(replace(row, speedup=speedup, efficiency=efficiency, spread=words, unfair=ratio.unfair))
    return by_devices(rows)
