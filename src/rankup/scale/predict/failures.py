"""Failures: how often to save, and what is left of the time.

Young, "A First Order Approximation to the Optimum Checkpoint Interval", 1974; Daly, "A Higher Order Estimate of the
Optimum Checkpoint Interval for Restart Dumps", 2006, equations 20 and 37.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rankup.errors import RankupError


@dataclass(frozen=True)
class Reliability:
    """Seconds. ``node_mtbf``: mean time between failures of one node; ``save``: how long a snapshot stops the
    training; ``restart``: from a failure to the first new step."""

    node_mtbf: float
    save: float
    restart: float

    def interval(self, nodes: int) -> float:
        """Seconds of training between two snapshots on so many nodes."""
        return best_interval(self.save, self.node_mtbf / nodes)

    def goodput(self, nodes: int) -> float:
        return goodput(self.interval(nodes), self.save, self.restart, self.node_mtbf / nodes)


def best_interval(save: float, between_failures: float) -> float:
    """Seconds of training between two snapshots of ``save`` seconds each, for this mean time between failures."""
    if math.isinf(between_failures) or save == 0:
        return math.inf if save else 0.0
    if save >= 2 * between_failures:
        return between_failures
    part = save / (2 * between_failures)
    return math.sqrt(2 * save * between_failures) * (1 + math.sqrt(part) / 3 + part / 9) - save


def goodput(interval: float, save: float, restart: float, between_failures: float) -> float:
    """The share of the wall time that is training which is not lost, with failures that come at random (Poisson).

    ``restart``: from a failure to the first new step. 0 where the machine fails too often to come to a snapshot.
    """
    if min(save, restart) < 0 or interval < 0 or between_failures <= 0:
        raise RankupError("bad-failures", "times of snapshots, restarts and failures must not be negative")
    if math.isinf(between_failures):
        return 1.0 if interval + save == 0 or math.isinf(interval) else interval / (interval + save)
    if interval == 0:  # saving costs nothing: only the restarts do
        return math.exp(-restart / between_failures)
    exponent = (interval + save) / between_failures
    if exponent + restart / between_failures > 700:
        return 0.0
    return interval / (between_failures * math.exp(restart / between_failures) * math.expm1(exponent))
