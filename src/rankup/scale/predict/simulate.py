"""A step event by event: the all-reduce of a bucket starts when its gradients are ready and the one before has ended.

There is one stream of communication, and buckets leave in order, as in DDP. The backward pass makes gradients at a
constant number of bytes per second, an assumption. Then the optimizer's step; the slowest device ends the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rankup.errors import RankupError
from rankup.scale.predict.failures import best_interval, goodput
from rankup.scale.predict.links import Links
from rankup.scale.predict.points import Size
from rankup.scale.predict.step_model import straggle


@dataclass(frozen=True)
class Work:
    """One step of one device, in seconds; ``buckets`` in bytes, in the order of their all-reduces.

    ``data``: to read the samples of one device while the node's others do nothing. ``sigma``: of one device's step.
    """

    forward: float
    backward: float
    buckets: tuple[int, ...]
    batch: int = 1
    optimizer: float = 0.0
    data: float = 0.0
    sigma: float = 0.0

    def __post_init__(self) -> None:
        numbers = (self.forward, self.backward, self.optimizer, self.data, self.sigma, *self.buckets)
        if not all(math.isfinite(number) and number >= 0 for number in numbers) or self.batch < 1:
            raise RankupError("bad-work", "times and sizes of a step must be finite and not negative")


@dataclass(frozen=True)
class Reliability:
    """Seconds. ``node_mtbf``: mean time between failures of one node."""

    node_mtbf: float = math.inf
    save: float = 0.0
    restart: float = 0.0


@dataclass(frozen=True)
class Simulated:
    """``communication`` is all of it, ``exposed`` the part that the computation does not hide.

    ``goodput``: share of the wall time that is training which is not lost; ``interval``: seconds between snapshots.
    """

    size: Size
    seconds: float
    communication: float
    exposed: float
    rate: float
    efficiency: float
    goodput: float
    interval: float

    def as_dict(self) -> dict[str, Any]:
        given = {**asdict(self), "devices": self.size.devices}
        return {
            key: None if value == math.inf else value for key, value in given.items()
        }  # JSON has no infinity


def step_seconds(work: Work, links: Links, size: Size) -> tuple[float, float, float]:
    """Seconds of a step, of its communication, and of that part of it which nothing hides."""
    total = sum(work.buckets)
    ready, free, communication = work.forward, 0.0, 0.0
    for bucket in work.buckets:
        ready += work.backward * bucket / total if total else 0.0
        seconds = links.allreduce(bucket, size.nodes, size.per_node)
        free = max(ready, free) + seconds
        communication += seconds
    computed = work.forward + work.backward
    together = max(computed, free)
    step = max(together, work.data * size.per_node) + work.optimizer + straggle(work.sigma, size.devices)
    # The shares of the buckets add up to the backward pass but for rounding.
    exposed = together - computed if communication else 0.0
    return step, communication, exposed


def simulate(work: Work, links: Links, size: Size, reliability: Reliability | None = None) -> Simulated:
    reliability = reliability or Reliability()
    seconds, communication, exposed = step_seconds(work, links, size)
    alone = step_seconds(work, links, Size(1, 1))[0]
    between_failures = reliability.node_mtbf / size.nodes
    interval = best_interval(reliability.save, between_failures)
    return Simulated(
        size,
        seconds,
        communication,
        exposed,
        rate=work.batch * size.devices / seconds if seconds else math.inf,
        efficiency=alone / seconds if seconds else 1.0,
        goodput=goodput(interval, reliability.save, reliability.restart, between_failures),
        interval=interval,
    )


def simulate_all(
    work: Work, links: Links, sizes: Sequence[Size], reliability: Reliability | None = None
) -> list[Simulated]:
    return [simulate(work, links, size, reliability) for size in sizes]
