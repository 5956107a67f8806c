"""Links between devices: α (seconds of latency per hop) and β (bytes per second in one direction), and their fit.

An all-reduce over g devices of m bytes takes h(g)·α + 2(g−1)/g · m/β. The hops h are 2(g−1) in a ring and
2⌈log2 g⌉ in a tree; libraries take the better of them. Over nodes it is hierarchical: within each node, then
between the nodes (Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", 2005).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankup.errors import RankupError

RING, TREE, BEST = "ring", "tree", "best"


@dataclass(frozen=True)
class Link:
    """``alpha`` in seconds, ``beta`` in bytes per second; infinite for a link that costs nothing."""

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        if not (self.alpha >= 0 and self.beta > 0):
            raise RankupError(
                "bad-link", f"a link needs α ≥ 0 and β > 0, got α = {self.alpha:g} s, β = {self.beta:g} B/s"
            )

    def allreduce(self, size: float, devices: int, algorithm: str = BEST) -> float:
        """Seconds of an all-reduce of ``size`` bytes over ``devices``."""
        return hops(devices, algorithm) * self.alpha + volume(devices) * size / self.beta


FREE = Link(0.0, math.inf)


@dataclass(frozen=True)
class Links:
    """Within a node, and between nodes."""

    inside: Link = FREE
    between: Link = FREE
    algorithm: str = BEST

    def allreduce(self, size: float, nodes: int, per_node: int) -> float:
        """Seconds of a hierarchical all-reduce of ``size`` bytes."""
        return self.inside.allreduce(size, per_node, self.algorithm) + self.between.allreduce(
            size, nodes, self.algorithm
        )


def hops(devices: int, algorithm: str = BEST) -> int:
    """How many messages follow each other."""
    ring, tree = 2 * (devices - 1), 2 * math.ceil(math.log2(devices))
    return {RING: ring, TREE: tree, BEST: min(ring, tree)}[algorithm]


def volume(devices: int) -> float:
    """How often its own size each device sends: 2(g−1)/g."""
    return 2 * (devices - 1) / devices


def fit_link(pairs: Sequence[tuple[float, float]], devices: int, algorithm: str = BEST) -> Link:
    """α and β from (bytes, seconds) of all-reduces over ``devices``: least squares of relative errors.

    Raises RankupError for fewer than two sizes, or times that do not grow with the size.
    """
    good = [(m, t) for m, t in pairs if m > 0 and math.isfinite(t) and t > 0]
    if len(good) != len(pairs) or len({m for m, _ in good}) < 2 or devices < 2:
        raise RankupError(
            "bad-sweep",
            "a bandwidth sweep needs all-reduces of two sizes or more, with their times, on two devices or more",
            hint="rankup predict --measure-links",
        )
    # t = a + b·m, each term divided by t: so small sizes decide about α, and large ones about β.
    a, b = _line([(1 / t, m / t) for m, t in good])
    if a < 0:
        a, b = 0.0, sum(m / t for m, t in good) / sum((m / t) ** 2 for m, t in good)
    if b <= 0:
        raise RankupError(
            "bad-sweep",
            "the times of the bandwidth sweep do not grow with the size",
            hint="measure on a quiet machine, with larger sizes",
        )
    return Link(a / hops(devices, algorithm), volume(devices) / b)


def _line(rows: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """x, y that bring u·x + v·y nearest to 1."""
    uu, vv, uv = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (1, 1), (0, 1)))
    u, v = (sum(r[i] for r in rows) for i in (0, 1))
    determinant = uu * vv - uv * uv
    return (u * vv - v * uv) / determinant, (v * uu - u * uv) / determinant


def write_links(links: Links, path: Path) -> None:
    # JSON has no infinity: a link that was not measured is null.
    path.write_text(json.dumps(links_as_dict(links), indent=2) + "\n", encoding="utf-8")


def links_as_dict(links: Links) -> dict[str, Any]:
    return {
        "inside": None if links.inside == FREE else asdict(links.inside),
        "between": None if links.between == FREE else asdict(links.between),
        "algorithm": links.algorithm,
    }


def read_links(path: Path) -> Links:
    """What ``write_links`` wrote. Raises RankupError."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        inside, between = (Link(**given[name]) if given[name] else FREE for name in ("inside", "between"))
        return Links(inside, between, given["algorithm"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else error
        raise RankupError(
            "bad-links",
            f"cannot read links from {path.name}: {why}",
            context=str(path),
            hint="rankup predict --measure-links --out links.json writes them",
        ) from error
