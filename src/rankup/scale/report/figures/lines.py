"""Lines of many over time: all of a few, or the median, a band and the extremes by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rankup.scale.report.figures.picture import (
    MOST_SERIES,
    MUTED,
    LineLabel,
    plain_axes,
    style_of,
    tell_lines,
)
from rankup.scale.report.thin import Numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_NAMED = 3
_BAND = (10, 90)  # percentiles
_APART = 0.1  # of the median


def greatest(means: Numbers, most: int) -> list[int]:
    """The places of the greatest, the greatest first."""
    return [int(index) for index in np.argsort(-means, kind="stable")[:most]]


def named(means: Numbers) -> list[int]:
    """Which of many are named: those that are farthest from the median, if they are a tenth of it away."""
    away = np.abs(means - np.median(means))
    return [index for index in greatest(away, MOST_NAMED) if away[index] > _APART * abs(np.median(means))]


def time_unit(seconds: float) -> tuple[float, str]:
    return (3600.0, "h") if seconds > 2 * 3600 else (60.0, "min") if seconds > 300 else (1.0, "s")


def draw_lines(figure: Figure, labels: Sequence[str], seconds: Numbers, values: Numbers, what: str) -> None:
    """``values``: one row for each label, one column for each of ``seconds``; NaN where a row is not known.

    A row is known somewhere.
    """
    axes = figure.subplots()
    factor, unit = time_unit(float(seconds[-1]))
    plain_axes(axes, f"time since the start ({unit})", what)
    x = seconds / factor
    few = len(labels) <= MOST_SERIES
    if not few:
        _band(axes, x, values)
    means = np.nanmean(values, axis=1)
    told = []
    for index, place in enumerate(range(len(labels)) if few else named(means)):
        colour = index if few else index + 1
        known = np.isfinite(values[place])
        points: dict[str, Any] = {"marker": "."} if known.sum() < 3 else {}
        axes.plot(x[known], values[place][known], **style_of(colour), **points)
        told.append(LineLabel(labels[place], float(x[known][-1]), float(values[place][known][-1]), colour))
    if not few:
        middle = _percentile(values, 50)
        known = np.isfinite(middle)
        axes.plot(x[known], middle[known], **style_of(0))
        told.insert(0, LineLabel("median", float(x[known][-1]), float(middle[known][-1]), 0))
    axes.set_ylim(0, _top(values))
    tell_lines(axes, told)


def _band(axes: Axes, x: Numbers, values: Numbers) -> None:
    low, high = (_percentile(values, one) for one in _BAND)
    axes.fill_between(x, low, high, where=np.isfinite(low), color=MUTED, alpha=0.3, linewidth=0)


def _percentile(values: Numbers, share: int) -> Numbers:
    """Of each column over what is known."""
    found: Numbers = np.full(values.shape[1], np.nan)
    known = np.isfinite(values).any(axis=0)
    found[known] = np.nanpercentile(values[:, known], share, axis=0)
    return found


def _top(values: Numbers) -> float:
    """The greatest value fits; nothing of a figure of zeros is flat."""
    return 1.06 * float(np.nanmax(values)) or 1.0
