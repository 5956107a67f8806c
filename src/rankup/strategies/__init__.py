"""Floor 2: how one model becomes the model of many processes. One small file per strategy, chosen by name."""

from __future__ import annotations

from typing import Any

from rankup.core.registry import lookup
from rankup.strategies.base import Strategy

STRATEGIES = {
    "none": "rankup.strategies.none:NoStrategy",
    "dp": "rankup.strategies.dp:DP",
    "ddp": "rankup.strategies.ddp:DDP",
    "fsdp": "rankup.strategies.fsdp:FSDP",
    "tp": "rankup.strategies.tp:TP",
    "pp": "rankup.strategies.pp:PP",
    "deepspeed": "rankup.strategies.deepspeed:DeepSpeed",
}
#: Those that serve a plain ``loss.backward()`` and ``opt.step()``; the others want a workload and its loop.
FOR_SCRIPTS = ("none", "ddp", "fsdp")


def make_strategy(name: str, **options: Any) -> Strategy:
    """A fresh strategy; ``name`` as in ``--strategy``, ``options`` as its class takes them."""
    strategy = lookup("strategy", name, STRATEGIES)(**options)  # type: ignore[operator]
    assert isinstance(strategy, Strategy)
    return strategy


__all__ = ["FOR_SCRIPTS", "STRATEGIES", "Strategy", "make_strategy"]
