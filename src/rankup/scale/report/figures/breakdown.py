"""Where the time of a step goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rankup.scale.report.figures.picture import INK, MOST_CHARACTERS, ON_COLOUR, SERIES, Picture, plain_axes
from rankup.scale.report.rows import ReportRow
from rankup.scale.report.text import clipped, percent, short
from rankup.scale.results import PARTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {"data": SERIES[4], "compute": SERIES[0], "communication": SERIES[1], "optimizer": SERIES[3]}
_READABLE = 0.1  # share of the axes below which a number does not fit into its bar


def breakdown(rows: Sequence[ReportRow]) -> Picture | None:
    """Stacked bars: one per configuration that was measured part by part."""
    measured = [row for row in rows if sum(row.breakdown.values()) > 0]
    if not measured:
        return None
    last = max(measured, key=lambda row: row.devices)
    total = sum(last.breakdown.values())
    told = ", ".join(f"{part} {percent(last.breakdown.get(part, 0) / total)}" for part in PARTS)
    return Picture(
        "breakdown",
        "Where the time goes",
        f"The parts of a step of {short(1000 * total)} ms with {last.name}: {told}.",
        "One step, in milliseconds: waiting for data, computing, communication that computing does not hide, and the "
        "optimizer. Medians over the repeats.",
        lambda figure: _draw(figure, measured),
    )


def _draw(figure: Figure, rows: Sequence[ReportRow]) -> None:
    figure.set_figheight(max(figure.get_figheight(), 1.2 + 0.5 * len(rows)))
    axes = figure.subplots()
    plain_axes(axes, "one step (ms)", "")
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x")
    longest = max(sum(row.breakdown.values()) for row in rows)
    for place, row in enumerate(rows):
        left = 0.0
        total = sum(row.breakdown.values())
        for part in PARTS:
            seconds = row.breakdown.get(part, 0.0)
            axes.barh(
                place, 1000 * seconds, left=1000 * left, height=0.5, color=_COLOURS[part],
                edgecolor=ON_COLOUR, linewidth=0.8,
            )  # fmt: skip
            if seconds / longest >= _READABLE:
                axes.text(
                    1000 * (left + seconds / 2), place, f"{100 * seconds / total:.0f} %",
                    ha="center", va="center", color=ON_COLOUR,
                )  # fmt: skip
            left += seconds
        axes.text(0, place - 0.3, clipped(row.name, MOST_CHARACTERS), ha="left", va="bottom", color=INK)
    axes.set_ylim(len(rows) - 0.55, -0.75)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    from matplotlib.patches import Patch

    shown = [part for part in PARTS if any(row.breakdown.get(part, 0) > 0 for row in rows)]
    axes.legend(
        [Patch(facecolor=_COLOURS[part]) for part in shown], shown, loc="lower left", bbox_to_anchor=(-0.02, 1.0),
        ncols=2, frameon=False, borderaxespad=0.2, handlelength=1, columnspacing=1.5,
    )  # fmt: skip
