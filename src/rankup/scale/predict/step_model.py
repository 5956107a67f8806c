"""The whole model of a step, where its parts and the links were measured.

T = max{T_data, (T_c^γ + T_x^γ)^(1/γ)} + T_opt + σ·√(2 ln N)

T_c: forward and backward under ``no_sync``. T_x: the all-reduces of the gradient buckets, from α and β of the links.
γ: 1 if they follow each other, large if they overlap wholly. T_data: of a node, which its devices share. σ: the
standard deviation of one rank's step; the slowest of N is √(2 ln N) of them behind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rankup.errors import RankupError
from rankup.scale.predict.links import Links
from rankup.scale.predict.points import Point, Size

GAMMA_LOW, GAMMA_HIGH = 1.0, 10.0
NOTICEABLE = 0.02  # of a step: less is noise, or the copy to the device


@dataclass(frozen=True)
class StepModel:
    """Seconds of one step of one device, under weak scaling. ``data_per_device``: a node's data time / its devices."""

    compute: float
    buckets: tuple[int, ...]
    links: Links
    data_per_device: float = 0.0
    optimizer: float = 0.0
    gamma: float = GAMMA_LOW
    sigma: float = 0.0

    def communication(self, size: Size) -> float:
        """T_x: all buckets, one after the other."""
        return sum(self.links.allreduce(bucket, size.nodes, size.per_node) for bucket in self.buckets)

    def seconds(self, size: Size) -> float:
        together = overlapped(self.compute, self.communication(size), self.gamma)
        data = self.data_per_device * size.per_node
        return max(data, together) + self.optimizer + straggle(self.sigma, size.devices)


def overlapped(compute: float, communication: float, gamma: float) -> float:
    """(T_c^γ + T_x^γ)^(1/γ), without overflow."""
    large, small = max(compute, communication), min(compute, communication)
    return large * math.pow(1 + math.pow(small / large, gamma), 1 / gamma) if large > 0 else 0.0


def straggle(sigma: float, devices: int) -> float:
    """How far the slowest of so many is behind the mean."""
    return sigma * math.sqrt(2 * math.log(devices))


def fit_step_model(
    points: Sequence[Point], buckets: Sequence[int], links: Links, sigma: float = 0.0
) -> StepModel:
    """From the parts of the measured steps: T_c, T_data and T_opt of the largest node-filling point, γ of all.

    Raises RankupError where the parts of no step on several devices were measured.
    """
    known = [point for point in points if point.parts and point.batch]
    several = [point for point in known if point.size.devices > 1]
    if not several:
        raise RankupError(
            "no-breakdown",
            "the parts of a step (data, compute, communication, optimizer) were not measured on several devices",
            hint="the reduced form needs rates alone: leave --links out",
        )
    last = several[-1]
    assert last.parts is not None
    model = StepModel(
        compute=last.parts.get("compute", 0.0),
        buckets=tuple(buckets),
        links=links,
        data_per_device=_reading(last.parts) / last.size.per_node,
        optimizer=last.parts.get("optimizer", 0.0),
        sigma=sigma,
    )
    return replace(model, gamma=_gamma(model, several))


def _reading(parts: Mapping[str, float]) -> float:
    """T_data of a node. What was measured is by how much it exceeds the rest; if by nothing, it is not known, and 0."""
    hidden = parts.get("compute", 0.0) + parts.get("communication", 0.0)
    exposed = parts.get("data", 0.0)
    return exposed + hidden if exposed > NOTICEABLE * hidden else 0.0


def _gamma(model: StepModel, points: Sequence[Point]) -> float:
    """What brings the predicted rates nearest to the measured ones; a search, as there is one number to find."""

    def miss(gamma: float) -> float:
        tried = replace(model, gamma=gamma)
        return math.hypot(*(math.log(tried.seconds(p.size) * p.rate / p.batch) for p in points))

    steps = [GAMMA_LOW * math.pow(GAMMA_HIGH / GAMMA_LOW, i / 400) for i in range(401)]
    return min(steps, key=miss)
