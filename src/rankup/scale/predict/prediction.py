"""A prediction with its interval and the linear baseline beside it; what is refused; its score afterwards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from rankup.errors import RankupError
from rankup.findings.finding import Confidence, Finding, Severity
from rankup.scale.predict.interval import LEVEL, around, relative_error
from rankup.scale.predict.points import Point, Size
from rankup.scale.predict.reduced import (
    ACROSS,
    FIXED_BATCH,
    FIXED_BATCH_WITHIN,
    STRONG,
    WEAK,
    WITHIN,
    Fit,
    Form,
    fit,
)

FAR = 4  # times the largest measured size: nothing was checked beyond it
SUPERLINEAR = 1.05
FALLS = 0.95
HARDLY = 1.1  # a size that is not even so much faster gains nothing
MISFIT = 0.15  # of the time of a measured size: what the form misses by more, it does not describe


@dataclass(frozen=True)
class Prediction:
    """``rate``, ``low`` and ``high`` in samples/s; ``linear``: the largest measured rate times the devices.

    ``parameters``: shares of the time of one device (weak scaling) or of all (strong) at the largest measured size.
    """

    size: Size
    rate: float
    low: float
    high: float
    linear: float
    scaling: str
    measured: tuple[Size, ...]
    parameters: dict[str, float] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    level: float = LEVEL

    def as_dict(self) -> dict[str, Any]:
        given = {**asdict(self), "devices": self.size.devices}
        return {**given, "findings": [finding.as_dict() for finding in self.findings]}


@dataclass(frozen=True)
class Score:
    """How a prediction did: relative errors of the predicted and the linear rate, and whether the interval held."""

    error: float
    linear_error: float
    within: bool

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def predict_next(points: Sequence[Point], size: Size, scaling: str = WEAK) -> Prediction:
    """What ``size`` will reach, from ``points`` in the order of their sizes. Raises RankupError where nobody can say.

    ``scaling``: ``weak`` (as many samples per device on every size) or ``strong`` (the global batch is fixed).
    """
    form = _form(size, scaling)
    used = _series(points, size, form)
    _refuse(points, used, size, form)
    fitted = fit(used, form)
    _refuse_misfit(fitted, used, size)
    rate = fitted.rate(size)
    low, high = around(rate, relative_error(used, form, size))
    last = used[-1]
    seconds = form.seconds(last.size, last.rate)
    shares = [p * t / seconds for p, t in zip(fitted.parameters, form.terms(last.size), strict=True)]
    return Prediction(
        size,
        rate,
        low,
        high,
        linear=last.rate * size.devices / last.size.devices,
        scaling=scaling,
        measured=tuple(point.size for point in used),
        parameters={name: round(share, 6) for name, share in zip(form.names, shares, strict=True)},
        findings=tuple(_warnings(points)),
    )


def score(prediction: Prediction, measured: Point | float) -> Score:
    """``measured``: the point of that size, or its samples per second."""
    rate = measured.rate if isinstance(measured, Point) else measured
    if not (math.isfinite(rate) and rate > 0):
        raise RankupError(
            "bad-rate", f"{rate!r} is not a rate", hint="samples per second, a number above zero"
        )
    return Score(
        prediction.rate / rate - 1, prediction.linear / rate - 1, prediction.low <= rate <= prediction.high
    )


def _form(size: Size, scaling: str) -> Form:
    if scaling not in (WEAK, STRONG):
        raise RankupError("bad-scaling", f"{scaling!r} is not a kind of scaling", hint="weak or strong")
    if scaling == STRONG:
        return FIXED_BATCH if size.nodes > 1 else FIXED_BATCH_WITHIN
    return ACROSS if size.nodes > 1 else WITHIN


def _series(points: Sequence[Point], size: Size, form: Form) -> list[Point]:
    """The points that tell about ``size``: nodes of the same kind; within a node, that node alone."""
    if form is ACROSS:
        return [point for point in points if point.size.per_node == size.per_node]
    if size.nodes == 1:
        return [point for point in points if point.size.nodes == 1]
    return [point for point in points if point.size.nodes == 1 or point.size.per_node == size.per_node]


def _refuse(points: Sequence[Point], used: Sequence[Point], size: Size, form: Form) -> None:
    if len(points) == 1:
        raise RankupError(
            "one-point",
            f"one measurement ({points[0].size}) tells no trend",
            hint=f"measure {_missing(used, size)} as well",
        )
    nodes = {point.size.nodes for point in used}
    if size.nodes > 1 and (len(nodes) < 2 or max(nodes) < 2):
        raise RankupError(
            "no-node-boundary",
            f"cannot predict {size}: the measurements do not cross from one node to several nodes of {size.per_node}",
            context=", ".join(str(point.size) for point in points),
            hint=f"measure {_missing(used, size)}; from one node alone, published curves were missed by up to 59 %",
        )
    needed = (
        3 if size.nodes == 1 else len(form.names)
    )  # within a node: one more, which tells how far to trust them
    if len(used) < needed:
        raise RankupError(
            "too-few-points",
            f"cannot predict {size}: {len(used)} of the measurements tell about it, and {needed} are needed",
            context=", ".join(str(point.size) for point in points),
            hint=f"measure {_missing(used, size)} as well",
        )
    times = size.devices / used[-1].size.devices
    if times > FAR:
        each = size.per_node if size.nodes > 1 else 1
        raise RankupError(
            "too-far",
            f"cannot predict {size}: it is {times:g} times the largest measured size",
            context=", ".join(str(point.size) for point in used),
            hint=f"measure {-(-size.devices // FAR // each) * each} devices or more; nothing was checked beyond "
            f"{FAR} times",
        )


def _refuse_misfit(fitted: Fit, used: Sequence[Point], size: Size) -> None:
    """A curve that levels off is limited by something that the form does not have: it would go on rising in it."""
    misses = fitted.misses(used)
    worst = max(range(len(used)), key=lambda index: abs(misses[index]))
    if len(used) > fitted.free and abs(misses[worst]) > MISFIT:
        point = used[worst]
        raise RankupError(
            "other-curve",
            f"cannot predict {size}: the measured sizes do not follow the curve of a network's cost, which misses "
            f"{point.size} by {abs(misses[worst]):.0%} ({point.rate / (1 + misses[worst]):,.0f}, measured "
            f"{point.rate:,.0f} samples/s)",
            context=", ".join(str(point.size) for point in used),
            hint="something else limits them: the reading of data from one file system, a shared link, too few cores; "
            "compare with synthetic data, or measure the size itself",
        )


def _missing(used: Sequence[Point], size: Size) -> str:
    """The smallest sizes that would do; two nodes are measured, and not predicted."""
    have = {point.size for point in used}
    if size.nodes > 1:
        wanted = [Size(1, size.per_node), Size(2, size.per_node)]
    else:
        wanted = [Size(1, max(size.per_node // part, 1)) for part in (8, 4, 2)]
    missing = [
        str(one) for one in dict.fromkeys(wanted) if one not in have and (one != size or size.nodes > 1)
    ]
    return " and ".join(missing) or "a third size"


def _warnings(points: Sequence[Point]) -> list[Finding]:
    found = []
    for first, second in pairwise(points):
        ratio = second.rate / first.rate
        share = ratio * first.size.devices / second.size.devices
        pair = f"{first.size} and {second.size}"
        if ratio < FALLS:
            found.append(
                Finding(
                    "slower-with-more",
                    Severity.WARNING,
                    f"{second.size} is slower than {first.size}: {second.rate:,.0f}, not {first.rate:,.0f} samples/s",
                    place=pair,
                    why="more devices do not pay here, whatever a larger size would reach",
                    fix="find the cause first: the network, the data, too few cores per process",
                )
            )
        elif second.size.nodes == first.size.nodes == 1 and ratio < HARDLY:
            found.append(
                Finding(
                    "node-limit",
                    Severity.WARNING,
                    f"{second.size} is hardly faster than {first.size}",
                    place=pair,
                    why="something that the node's devices share limits them, usually the reading of data",
                    fix="more cores or workers per node; compare with synthetic data",
                    confidence=Confidence.LIKELY,
                )
            )
        elif second.size.nodes > first.size.nodes and ratio < HARDLY:
            found.append(
                Finding(
                    "nodes-limit",
                    Severity.WARNING,
                    f"{second.size} is hardly faster than {first.size}",
                    place=pair,
                    why="the prediction takes the network between two nodes for the cause, which costs more nodes "
                    "little more; if all nodes share what limits them (a file system), more of them gain nothing",
                    fix="compare with synthetic data, or measure a third size",
                    confidence=Confidence.LIKELY,
                )
            )
        if share > SUPERLINEAR:
            found.append(
                Finding(
                    "superlinear",
                    Severity.WARNING,
                    f"a device of {second.size} is {share - 1:.0%} faster than one of {first.size}",
                    place=pair,
                    why="something slowed the smaller one, or the two did different work",
                    fix="measure both again, with the same precision and data",
                    confidence=Confidence.LIKELY,
                )
            )
    return found
