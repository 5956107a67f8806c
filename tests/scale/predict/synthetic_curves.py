"""Curves with a known truth."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from rankup.scale.predict.points import Point, Size

_BYTES = 100_000_000  # of gradients


@dataclass(frozen=True)
class Machine:
    """A step: computation, a ring inside the node, a tree or a ring between nodes, and the slowest of all devices.

    ``alpha`` in seconds a hop, ``beta`` in bytes per second, ``sigma`` of one device's step in seconds.
    """

    compute: float = 0.1
    alpha: float = 20e-6
    beta: float = 5e9
    sigma: float = 0.0

    def seconds(self, size: Size) -> float:
        links = ((size.per_node, 5e-6, 100e9), (size.nodes, self.alpha, self.beta))
        sent = sum(_hops(n) * alpha + 2 * (n - 1) / n * _BYTES / beta for n, alpha, beta in links)
        return self.compute + sent + self.sigma * math.sqrt(2 * math.log(size.devices))


def _hops(devices: int) -> int:
    return min(2 * (devices - 1), 2 * math.ceil(math.log2(devices)))


def curve(
    model: Machine, sizes: list[Size], noise: float = 0.0, seed: int = 0, batch: int = 32
) -> list[Point]:
    """What a machine that is like ``model`` would have measured."""
    draw = random.Random(seed)
    return [
        Point(size, batch * size.devices / model.seconds(size) * math.exp(draw.gauss(0, noise)))
        for size in sizes
    ]


machine = Machine
