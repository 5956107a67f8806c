"""Device-hours against time, with the frontier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rankup.core.units import duration
from rankup.scale.report.figures.picture import (
    INK,
    MARKERS,
    MOST_CHARACTERS,
    MOST_SERIES,
    MUTED,
    SERIES,
    Picture,
    plain_axes,
)
from rankup.scale.report.rows import ReportRow, hour_word
from rankup.scale.report.text import clipped, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FONT = 9  # points
_CHARACTER = 0.0245  # width of one in that size, as a share of the axes


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
    word = hour_word(rows)
    told = "; ".join(
        f"{row.name} in {duration(row.seconds.median)} for {short(row.device_hours)}" for row in on[:5]
    )
    return Picture(
        "cost",
        "Cost",
        f"Cost in {word} against time. On the frontier: {told}.",
        f"Down and to the left is better. The line joins the configurations that no other beats in both time and "
        f"{word}; open points are beaten. The table names them all.",
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
    for row in rows:
        index = kinds.index(row.series) % MOST_SERIES
        x, y = row.seconds.median, row.device_hours
        filled = SERIES[index] if row in on else "none"
        axes.plot(
            x, y, marker=MARKERS[index], color=SERIES[index], markerfacecolor=filled, linestyle="", zorder=3
        )
    width = max(row.seconds.median for row in rows) * 1.12
    height = max(row.device_hours for row in rows) * 1.15
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    points = [(row.seconds.median / width, row.device_hours / height) for row in rows]
    names = [clipped(row.name, MOST_CHARACTERS) for row in rows]
    for name, place in zip(names, _places(names, points, [row in on for row in rows]), strict=True):
        if place:
            x, y, side = place
            axes.annotate(
                name,
                (x, y),
                xycoords="axes fraction",
                ha=side,
                va="center",
                color=INK,
                fontsize=_FONT,
                zorder=4,
            )


def _places(
    names: Sequence[str], points: Sequence[tuple[float, float]], first: Sequence[bool]
) -> list[tuple[float, float, str] | None]:
    """Where each name goes, in shares of the axes: beside its point, on no other name or point; None if nowhere.

    Those of ``first`` choose first. Widths are estimates: the layout is not known yet.
    """
    away_x, away_y = 0.03, 0.075
    taken = [(x - away_x / 2, y - away_y / 3, x + away_x / 2, y + away_y / 3) for x, y in points]
    places: list[tuple[float, float, str] | None] = [None] * len(names)
    for index in sorted(range(len(names)), key=lambda one: not first[one]):
        x, y = points[index]
        wide = len(names[index]) * _CHARACTER
        for side, dy in (("left", 0), ("left", 1), ("right", 0), ("right", 1), ("left", -1), ("right", -1)):
            left = x + away_x if side == "left" else x - away_x - wide
            box = (left, y + (dy - 0.5) * away_y, left + wide, y + (dy + 0.5) * away_y)
            inside = box[0] >= 0 and box[2] <= 1.02 and box[1] >= 0 and box[3] <= 1.02
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                places[index] = (x + away_x if side == "left" else x - away_x, y + dy * away_y, side)
                break
    return places


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
