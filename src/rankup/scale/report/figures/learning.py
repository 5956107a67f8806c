"""Loss and accuracy against epochs and against time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rankup.core.units import duration
from rankup.scale.report.content import Group
from rankup.scale.report.figures.picture import (
    MOST_SERIES,
    MUTED,
    LineLabel,
    Picture,
    plain_axes,
    style_of,
    tell_lines,
)
from rankup.scale.report.run_records import Curve, RunRecords
from rankup.scale.report.text import short
from rankup.scale.report.thin import Numbers, thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_DRAWN = 60_000  # points of one figure, over all its lines: a page of 200 runs stays a few MB
_FEWEST = 40  # points of one line, however many lines there are
# What to draw: the first of these that any run tells. (from the steps or the epochs, metric, what it is)
_SOURCES = {
    "loss": (
        ("steps", "loss", "training loss"),
        ("epochs", "loss", "training loss"),
        ("epochs", "test_loss", "test loss"),
    ),
    "accuracy": (
        ("epochs", "test_accuracy", "test accuracy"),
        ("epochs", "accuracy", "accuracy"),
        ("steps", "accuracy", "training accuracy"),
    ),
}
_AXES = {"epochs": "epochs", "time": "training time"}


def learning(groups: Sequence[Group], what: str, against: str) -> Picture | None:
    """``what`` is ``loss`` or ``accuracy``; ``against`` is ``epochs`` or ``time``."""
    found = _curves(groups, what, against)
    if found is None:
        return None
    lines, word = found
    ends = [(float(curve.values[-1]), index) for index, (_, curves) in enumerate(lines) for curve in curves]
    value, index = (max if what == "accuracy" else min)(ends)
    shown, best = _value(value, what), lines[index][0].label
    seconds = max(float(curve.seconds[-1]) for _, curves in lines for curve in curves)
    until = f" over {duration(seconds)}" if against == "time" and np.isfinite(seconds) else ""
    told = (
        f"{best} ends at {shown}"
        if len(ends) == 1
        else f"the best of {len(ends)} lines, {best}, ends at {shown}"
    )
    return Picture(
        f"{what}-{against}",
        f"{word.capitalize()} against {_AXES[against]}",
        f"{word.capitalize()} against {_AXES[against]}{until}: {told}.",
        _caption(lines, against),
        lambda figure: _draw(figure, lines, what, against, word),
    )


_Lines = list[tuple[Group, list[Curve]]]


def _curves(groups: Sequence[Group], what: str, against: str) -> tuple[_Lines, str] | None:
    for source, metric, word in _SOURCES[what]:
        lines = [
            (group, curves)
            for group in groups
            if (curves := [one for run in group.runs if (one := _curve(run, source, metric, against))])
        ]
        if any(len(curve.values) > 1 for _, curves in lines for curve in curves):
            return lines, word
    return None


def _curve(run: RunRecords, source: str, metric: str, against: str) -> Curve | None:
    """A curve that has its x values."""
    curves: Mapping[str, Curve] = getattr(run, source)
    curve = curves.get(metric)
    if curve is None or not len(curve.values) or not np.isfinite(_x(curve, against)).all():
        return None
    return curve


def _x(curve: Curve, against: str) -> Numbers:
    return curve.epochs if against == "epochs" else curve.seconds


def _value(value: float, what: str) -> str:
    return f"{100 * value:.2f} %" if what == "accuracy" else short(value)


def _caption(lines: _Lines, against: str) -> str:
    curves = [curve for _, found in lines for curve in found]
    repeats = max(len(found) for _, found in lines)
    said = ["Each repeat has its own line."] if repeats > 1 else []
    if len(lines) > MOST_SERIES:
        said.append(
            f"{len(lines)} lines in grey; the one that ends best and the one that ends worst are named."
        )
    most = _most(len(curves))
    if any(curve.measured > min(most, len(curve.values)) for curve in curves):
        said.append(
            f"Drawn with at most {most:,} points a line, of up to {max(c.measured for c in curves):,} records: "
            "the least and the greatest of each stretch, so that no spike is lost."
        )
    if against == "time":
        said.append("Seconds of training, over all attempts.")
    return " ".join(said)


def _most(count: int) -> int:
    return max(_FEWEST, _MOST_DRAWN // count // 4)


def _draw(figure: Figure, lines: _Lines, what: str, against: str, word: str) -> None:
    axes = figure.subplots()
    factor, unit = _time_unit(lines) if against == "time" else (1.0, "")
    scale = 100.0 if what == "accuracy" else 1.0
    plain_axes(
        axes,
        "epoch" if against == "epochs" else f"training time ({unit})",
        word + (" (%)" if scale > 1 else ""),
    )
    named = _named(lines, what)
    most = _most(sum(len(curves) for _, curves in lines))
    labels = []
    for place, (group, curves) in enumerate(lines):
        index = named.get(place)
        for curve in curves:
            kept = thinned(curve.values, most)
            x, y = _x(curve, against)[kept] / factor, scale * curve.values[kept]
            style = {"color": MUTED, "linewidth": 0.5, "alpha": 0.45} if index is None else style_of(index)
            few = index is not None and len(x) <= 12
            axes.plot(x, y, marker="." if few else "", zorder=2 if index is None else 3, **style)
        if index is not None:
            labels.append(LineLabel(group.label, float(x[-1]), float(y[-1]), index))
    _ticks(axes, against)
    tell_lines(axes, labels)


def _ticks(axes: Axes, against: str) -> None:
    if against == "epochs":
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _named(lines: _Lines, what: str) -> dict[int, int]:
    """Which lines have a colour and a name: all of few, the best and the worst of many. Place → index of the colour."""
    if len(lines) <= MOST_SERIES:
        return {place: place for place in range(len(lines))}
    ends = [float(np.mean([curve.values[-1] for curve in curves])) for _, curves in lines]
    order = sorted(range(len(lines)), key=lambda place: ends[place], reverse=what == "accuracy")
    return {order[0]: 0, order[-1]: 1}


def _time_unit(lines: _Lines) -> tuple[float, str]:
    longest = max(float(curve.seconds[-1]) for _, curves in lines for curve in curves)
    return (3600.0, "h") if longest > 2 * 3600 else (60.0, "min") if longest > 300 else (1.0, "s")
