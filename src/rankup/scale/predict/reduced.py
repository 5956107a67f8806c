"""The reduced form of the model: what rates alone can tell.

Weak scaling: the time that a device spends on a sample is T(n) = T(1 node) + e·2(n−1)/n over nodes of equal size, and
likewise over the devices of one node. e is the exposed part of an all-reduce, and 2(n−1)/n what a ring sends.

Strong scaling, a fixed global batch: T(N) = c/N + a·[N > 1] + e·2(n−1)/n, within a node without the last term.

All parameters are at least 0. Nothing here refuses: ``prediction`` does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rankup.scale.predict.points import Point, Size

WEAK, STRONG = "weak", "strong"
Terms = Callable[[Size], tuple[float, ...]]


def volume(devices: int) -> float:
    """How often its own size each device sends in an all-reduce by a ring: 2(g−1)/g."""
    return 2 * (devices - 1) / devices


@dataclass(frozen=True)
class Form:
    """``terms`` of a size, one for each parameter; ``seconds`` of a size and a rate: what they add up to."""

    terms: Terms
    seconds: Callable[[Size, float], float]
    names: tuple[str, ...]


ACROSS = Form(
    lambda s: (1.0, volume(s.nodes)), lambda s, rate: s.devices / rate, ("one node", "between nodes")
)
WITHIN = Form(
    lambda s: (1.0, volume(s.per_node)), lambda s, rate: s.devices / rate, ("one device", "within the node")
)
FIXED_BATCH = Form(
    lambda s: (1 / s.devices, float(s.devices > 1), volume(s.nodes)),
    lambda s, rate: 1 / rate,
    ("shared work", "any communication", "between nodes"),
)
# Within one node only: over nodes this would be Amdahl's law, which misses published curves by 15 % on average.
FIXED_BATCH_WITHIN = Form(
    lambda s: (1 / s.devices, float(s.devices > 1)), lambda s, rate: 1 / rate, FIXED_BATCH.names[:2]
)


@dataclass(frozen=True)
class Fit:
    """``parameters`` in seconds per sample, by ``form.names``; ``last`` is the largest point."""

    form: Form
    parameters: tuple[float, ...]
    last: Point

    def rate(self, size: Size) -> float:
        """Samples per second. Beyond the largest point the curve goes on from that point, not from the fit."""
        seconds = self._fitted(size)
        if size > self.last.size:
            seconds *= self.form.seconds(self.last.size, self.last.rate) / self._fitted(self.last.size)
        return self.form.seconds(size, 1.0) / seconds

    def misses(self, points: Sequence[Point]) -> list[float]:
        """How far the fit is from each of the points, as a share of its time. Above 0: the fit is slower."""
        return [
            self._fitted(point.size) / self.form.seconds(point.size, point.rate) - 1.0 for point in points
        ]

    @property
    def free(self) -> int:
        """How many parameters the fit uses; as many points are always met."""
        return sum(parameter > 0 for parameter in self.parameters)

    def _fitted(self, size: Size) -> float:
        return sum(p * t for p, t in zip(self.parameters, self.form.terms(size), strict=True))


def fit(points: Sequence[Point], form: Form) -> Fit:
    """Least squares of the relative errors, no parameter below 0. ``points`` in the order of their sizes."""
    rows = []
    for point in points:
        seconds = form.seconds(point.size, point.rate)
        rows.append([term / seconds for term in form.terms(point.size)])
    return Fit(form, _least_squares(rows), points[-1])


def _least_squares(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """x ≥ 0 that brings each row·x nearest to 1. So few parameters that all subsets of them can be tried."""
    count = len(rows[0])
    best, least = (0.0,) * count, float(len(rows))
    for size in range(1, min(count, len(rows)) + 1):
        for chosen in itertools.combinations(range(count), size):
            found = _solve([[row[j] for j in chosen] for row in rows])
            if found is None or min(found) < 0:
                continue
            x = tuple(dict(zip(chosen, found, strict=True)).get(j, 0.0) for j in range(count))
            rest = sum((sum(a * b for a, b in zip(row, x, strict=True)) - 1) ** 2 for row in rows)
            if rest < least - 1e-15:  # of equal fits the one with fewer parameters
                best, least = x, rest
    return best


def _solve(rows: Sequence[Sequence[float]]) -> list[float] | None:
    """Without the bound: the normal equations by elimination; None where they are singular."""
    count = len(rows[0])
    scale = [max(abs(row[j]) for row in rows) or 1.0 for j in range(count)]
    scaled = [[row[j] / scale[j] for j in range(count)] for row in rows]
    matrix = [
        [sum(row[i] * row[j] for row in scaled) for j in range(count)] + [sum(row[i] for row in scaled)]
        for i in range(count)
    ]
    for i in range(count):
        pivot = max(range(i, count), key=lambda k: abs(matrix[k][i]))
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        if abs(matrix[i][i]) < 1e-10:
            return None
        for k in range(count):
            if k != i:
                factor = matrix[k][i] / matrix[i][i]
                matrix[k] = [a - factor * b for a, b in zip(matrix[k], matrix[i], strict=True)]
    return [matrix[i][count] / matrix[i][i] / scale[i] for i in range(count)]
