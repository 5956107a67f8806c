"""How far a prediction may be off: the error of the model, the noise of the measurements, and what the fit misses.

The error of the model over nodes is known from few curves: eight of four setups, predicted from 2 nodes to 4, are
missed by 3.9 % (root mean square of the logarithm). The noise of single measurements, 0.8 % each, explains 1.3 % of it.
What is left, 3.7 %, is for one doubling, and is taken to grow in proportion to the doublings. Its own uncertainty, of
four setups, is in Student's t with four degrees of freedom. Of 61 curves that had no part in it, it held 54.

Within a node the devices share more than a network: the readers of data, the CPUs. There the points' own error counts
as well: how far the form misses the largest of them, fitted to the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from rankup.scale.predict.points import Point, Size
from rankup.scale.predict.reduced import FIXED_BATCH, FIXED_BATCH_WITHIN, WITHIN, Form, fit

LEVEL = 0.90
T_QUANTILE = 2.132  # Student's t, 95 % quantile (LEVEL on both sides), 4 degrees of freedom
T_OF_ONE = 6.314 / T_QUANTILE  # the same of one degree of freedom: an error that was seen once
MODEL_ERROR = 0.037  # for each doubling
# For strong scaling there are no published curves to check it with; it has more parameters and grows faster.
STRONG_FACTOR = 2.0
INTERPOLATION = 0.5  # doublings that a size between two measured ones counts as


def relative_error(points: Sequence[Point], form: Form, size: Size) -> float:
    """The standard error of the logarithm of the rate predicted for ``size`` from ``points``."""
    doublings = max(math.log2(size.devices / points[-1].size.devices), INTERPOLATION)
    model = MODEL_ERROR * doublings * (STRONG_FACTOR if form in (FIXED_BATCH, FIXED_BATCH_WITHIN) else 1.0)
    own = doublings * T_OF_ONE * _held_back(points, form) if form in (WITHIN, FIXED_BATCH_WITHIN) else 0.0
    return math.hypot(model, own, _noise(points, form, size), _misfit(points, form))


def around(rate: float, error: float) -> tuple[float, float]:
    """The interval of ``LEVEL``, of a rate whose logarithm has this standard error."""
    factor = math.exp(T_QUANTILE * error)
    return rate / factor, rate * factor


def _held_back(points: Sequence[Point], form: Form) -> float:
    """How far the largest point is from what the others predict for it, for each doubling; 0 if they are too few."""
    *others, last = points
    if len(others) < len(form.names):
        return 0.0
    doublings = max(math.log2(last.size.devices / others[-1].size.devices), INTERPOLATION)
    return abs(math.log(fit(others, form).rate(last.size) / last.rate)) / doublings


def _misfit(points: Sequence[Point], form: Form) -> float:
    """How far the form misses the points, beyond their noise: what it misses there, it misses elsewhere too."""
    fitted = fit(points, form)
    if (spare := len(points) - fitted.free) < 1:
        return 0.0
    missed = sum(miss**2 for miss in fitted.misses(points)) / spare
    noise = sum(point.error**2 for point in points) / len(points)
    return math.sqrt(max(0.0, missed - noise))


def _noise(points: Sequence[Point], form: Form, size: Size) -> float:
    """Each point moved by its own standard error, both ways, and what that does to the prediction."""
    total = 0.0
    for index, point in enumerate(points):
        moved = []
        for sign in (1, -1):
            others = list(points)
            others[index] = replace(point, rate=point.rate * (1 + sign * point.error))
            moved.append(math.log(fit(others, form).rate(size)))
        total += ((moved[0] - moved[1]) / 2) ** 2
    return math.sqrt(total)
