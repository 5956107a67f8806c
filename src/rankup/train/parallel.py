"""From ``--strategy`` and a workload to the strategy: some need a member that not every workload has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rankup.errors import RankupError
from rankup.strategies import Strategy, make_strategy
from rankup.train.options import TrainOptions
from rankup.train.workload import Workload


def strategy_for(options: TrainOptions, workload: Workload) -> Strategy:
    """The strategy that ``options`` ask for; RankupError where ``workload`` cannot be trained with it."""
    name = options.strategy
    if name in ("auto", "ddp"):  # one process makes none of it
        return make_strategy("ddp", static_graph=options.static_graph)
    if name == "fsdp":
        return make_strategy(name, shard_size=options.shard_size)
    if name == "tp":
        return make_strategy(name, plan=_member(workload, "tensor_parallel_plan", options))
    if name == "pp":
        stages = _member(workload, "pipeline_stages", options)
        return make_strategy(name, stages=stages, loss=workload.loss, microbatches=options.microbatches)
    return make_strategy(name)


def _member(workload: Workload, member: str, options: TrainOptions) -> Callable[..., Any]:
    found = getattr(workload, member, None)
    if not callable(found):
        raise RankupError(
            "strategy-not-supported",
            f"the strategy {options.strategy} cannot train {options.name}: the workload has no {member}",
            hint=f"another strategy, or a member {member} (docs/reference/strategies.md)",
        )
    made: Callable[..., Any] = found
    return made
