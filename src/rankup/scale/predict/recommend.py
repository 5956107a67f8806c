"""Which size to ask for, among those that were measured or predicted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rankup.scale.predict.points import Point, Size
from rankup.scale.predict.prediction import Prediction

MIN_EFFICIENCY = 0.5


@dataclass(frozen=True)
class Choice:
    """``low``, ``high``: the rate may be between them. ``hours`` of ``samples`` and ``slow_hours`` at ``low``.

    ``efficiency``: the rate of a device against that of a device of the smallest measured size.
    """

    size: Size
    rate: float
    low: float
    high: float
    measured: bool
    efficiency: float
    hours: float | None
    slow_hours: float | None

    @property
    def device_hours(self) -> float | None:
        return None if self.hours is None else self.hours * self.size.devices

    def as_dict(self) -> dict[str, Any]:
        fields = ("rate", "low", "high", "measured", "efficiency", "hours", "slow_hours", "device_hours")
        size = {"nodes": self.size.nodes, "per_node": self.size.per_node, "devices": self.size.devices}
        return {**size, **{name: getattr(self, name) for name in fields}}


@dataclass(frozen=True)
class Advice:
    """None where no size will do; ``likely`` if the deadline is met by the prediction, not by its slow end."""

    smallest_in_time: Choice | None = None
    likely: bool = False
    most_efficient: Choice | None = None
    cheapest: Choice | None = None
    fastest: Choice | None = None

    def as_dict(self) -> dict[str, Any]:
        names = ("smallest_in_time", "most_efficient", "cheapest", "fastest")
        choices = {name: getattr(self, name) for name in names}
        return {"likely": self.likely, **{name: str(c.size) if c else None for name, c in choices.items()}}


def choices(
    points: Sequence[Point], predictions: Sequence[Prediction], samples: float | None
) -> list[Choice]:
    """In the order of devices. ``samples``: how many there are to process, None if nobody said."""
    first = points[0].rate / points[0].size.devices
    rows = [(p.size, p.rate, p.rate, p.rate, True) for p in points]
    rows += [(p.size, p.rate, p.low, p.high, False) for p in predictions]
    made = []
    for size, rate, low, high, measured in rows:
        efficiency = rate / size.devices / first
        hours, slow = (None, None) if samples is None else (samples / rate / 3600, samples / low / 3600)
        made.append(Choice(size, rate, low, high, measured, efficiency, hours, slow))
    return sorted(made, key=lambda choice: choice.size)


def recommend(
    among: Sequence[Choice], deadline: float | None = None, min_efficiency: float = MIN_EFFICIENCY
) -> Advice:
    """``deadline`` in seconds of training.

    The smallest that is in time, surely or else likely; the most efficient; the cheapest that is in time and no less
    efficient than the floor; the fastest that is no less efficient than the floor.
    """
    worth = [one for one in among if one.efficiency >= min_efficiency]
    most_efficient = max(among, key=lambda one: (round(one.efficiency, 3), -one.size.devices), default=None)
    fastest = max(worth, key=lambda one: one.rate, default=None)
    timed = [one for one in among if one.hours is not None]
    limit = math.inf if deadline is None else deadline / 3600
    surely = [one for one in timed if (one.slow_hours or 0.0) <= limit]
    in_time = surely or [one for one in timed if (one.hours or 0.0) <= limit]
    smallest = min(in_time, key=lambda one: one.size.devices, default=None) if deadline is not None else None
    affordable = [one for one in in_time if one in worth]
    cheapest = min(affordable, key=lambda one: (one.device_hours or 0.0, one.size.devices), default=None)
    return Advice(smallest, not surely and smallest is not None, most_efficient, cheapest, fastest)
