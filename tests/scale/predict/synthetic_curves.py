"""Curves with a known truth."""

from __future__ import annotations

import math
import random

from rankup.scale.predict.links import Link, Links
from rankup.scale.predict.points import Point, Size
from rankup.scale.predict.step_model import StepModel


def curve(
    model: StepModel, sizes: list[Size], noise: float = 0.0, seed: int = 0, batch: int = 32
) -> list[Point]:
    """What a machine that is like ``model`` would have measured."""
    draw = random.Random(seed)
    return [
        Point(size, batch * size.devices / model.seconds(size) * math.exp(draw.gauss(0, noise)))
        for size in sizes
    ]


def machine(compute: float = 0.1, alpha: float = 20e-6, beta: float = 5e9, sigma: float = 0.0) -> StepModel:
    return StepModel(
        compute, (100_000_000,), Links(Link(5e-6, 100e9), Link(alpha, beta)), gamma=1.0, sigma=sigma
    )
