"""Floor 2: how one model becomes the model of many processes. One small file per strategy, chosen by name."""

from __future__ import annotations

from rankup.core.registry import lookup
from rankup.strategies.base import Strategy

STRATEGIES = {
    "none": "rankup.strategies.single:Single",
    "ddp": "rankup.strategies.ddp:DDP",
}


def make_strategy(name: str) -> Strategy:
    """A fresh strategy; ``name`` as in ``--strategy``."""
    strategy = lookup("strategy", name, STRATEGIES)()  # type: ignore[operator]
    assert isinstance(strategy, Strategy)
    return strategy


__all__ = ["STRATEGIES", "Strategy", "make_strategy"]
