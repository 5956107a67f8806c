"""What each rank of one run needs for a step: its computation, the whole step, the wait for data.

A few ranks have a line each. Of many there are the median, the band that holds four fifths of them, and by name those
that stand out, so that a straggler is seen among thousands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rankup.scale.report.figures.lines import draw_lines, greatest
from rankup.scale.report.figures.picture import MOST_SERIES, Picture
from rankup.scale.report.rank_records import RankLines
from rankup.scale.report.text import listed, milliseconds
from rankup.scale.report.thin import Numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TOLD = 3  # slowest ranks in a sentence


def rank_pictures(ranks: RankLines | None) -> list[Picture | None]:
    if ranks is None:
        return []
    told = (
        (
            *("rank-computation", "Computation of a step by rank", "computation of a step", ranks.own_s),
            "What of a step a rank computes before it waits for the others, without its wait for data. A rank that is "
            "slow here makes all others wait.",
        ),
        (
            *("rank-step", "Time of a step by rank", "time of a step", ranks.step_s),
            "The whole step. Ranks that reduce their gradients together have the same.",
        ),
        (
            *("rank-data", "Wait for data by rank", "wait for data in a step", ranks.data_s),
            "What of a step a rank waits for its next batch.",
        ),
    )
    return [_picture(ranks, *one) for one in told]


def _picture(
    ranks: RankLines, name: str, title: str, what: str, values: Numbers, caption: str
) -> Picture | None:
    means = _means(values)
    known = np.isfinite(means)
    if not known.any():
        return None
    lines = values[known]
    labels = [label for label, one in zip(ranks.labels, known, strict=True) if one]
    order = greatest(means[known], _TOLD)
    extremes = listed([f"{milliseconds(means[known][index])} on {labels[index]}" for index in order])
    median = milliseconds(float(np.median(means[known])))
    alt = (
        f"{title} over time, on average {extremes}."
        if len(labels) <= _TOLD
        else f"{title} over time: the median over {len(labels)} ranks is {median}, the longest {extremes}."
    )
    many = (
        " The line is the median over the ranks, the band holds the middle four fifths of them; those that are "
        "farthest from it are named, if they are 10 % away."
        if len(labels) > MOST_SERIES
        else ""
    )
    return Picture(
        name,
        title,
        alt,
        f"{caption} Each point is the mean over a stretch of time.{many}",
        lambda figure: _draw(figure, labels, ranks.seconds, lines, what),
    )


def _means(values: Numbers) -> Numbers:
    """The mean of each row over what is known; NaN if nothing is."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        means: Numbers = np.where(known, values, 0.0).sum(axis=1) / known.sum(axis=1)
    return means


def _draw(figure: Figure, labels: Sequence[str], seconds: Numbers, values: Numbers, what: str) -> None:
    scale, unit = (1000.0, "ms") if float(np.nanmax(values)) < 2 else (1.0, "s")
    draw_lines(figure, labels, seconds, scale * values, f"{what} ({unit})")
