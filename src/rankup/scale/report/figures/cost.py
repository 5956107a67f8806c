"""Device-hours against time, with the frontier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rankup.core.units import duration
from rankup.scale.report.figures.picture import INK, MARKERS, MOST_SERIES, MUTED, SERIES, Picture, plain_axes
from rankup.scale.report.rows import ReportRow, device_word
from rankup.scale.report.text import short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMED = 8  # more points than these are named in the table alone


def frontier(rows: Sequence[ReportRow]) -> list[ReportRow]:
    """The rows that no other beats in both time and device-hours, the fastest first."""
    best: list[ReportRow] = []
    for row in sorted(rows, key=lambda one: (one.seconds.median, one.device_hours)):
        if not best or row.device_hours < best[-1].device_hours:
            best.append(row)
    return best


def cost(rows: Sequence[ReportRow]) -> Picture | None:
    """What each configuration costs, and how long it takes."""
    if len(rows) < 2:
        return None
    on = frontier(rows)
    word = {"GPUs": "GPU-hours", "CPU cores": "core-hours"}.get(device_word(rows), "device-hours")
    told = "; ".join(
        f"{row.name} in {duration(row.seconds.median)} for {short(row.device_hours)}" for row in on[:5]
    )
    return Picture(
        "cost",
        "Cost",
        f"Cost in {word} against time. On the frontier: {told}.",
        f"Down and to the left is better. The line joins the configurations that no other beats in both time and "
        f"{word}.",
        lambda figure: _draw(figure, rows, on, word),
    )


def _draw(figure: Figure, rows: Sequence[ReportRow], on: Sequence[ReportRow], word: str) -> None:
    axes = figure.subplots()
    plain_axes(axes, "training time (s)", f"cost ({word})")
    axes.plot(
        [row.seconds.median for row in on],
        [row.device_hours for row in on],
        color=MUTED,
        linewidth=1,
        zorder=1,
    )
    kinds = list(dict.fromkeys(row.series for row in rows))
    middle = (min(row.seconds.median for row in rows) + max(row.seconds.median for row in rows)) / 2
    for row in rows:
        index = kinds.index(row.series) % MOST_SERIES
        x, y = row.seconds.median, row.device_hours
        filled = SERIES[index] if row in on else "none"
        axes.plot(
            x, y, marker=MARKERS[index], color=SERIES[index], markerfacecolor=filled, linestyle="", zorder=3
        )
        if len(rows) <= _NAMED:
            right = x > middle
            axes.annotate(
                row.name, (x, y), xytext=(-7 if right else 7, 4), textcoords="offset points",
                ha="right" if right else "left", va="bottom", color=INK, zorder=4,
            )  # fmt: skip
    axes.margins(0.12, 0.2)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
