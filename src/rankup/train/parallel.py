"""Makes the strategy for ``--strategy`` and a workload. Some strategies need a member that not every workload has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rankup.errors import RankupError
from rankup.strategies import AUTO, STRATEGIES, Strategy, make_strategy
from rankup.train.options import TrainOptions
from rankup.train.workload import Workload


def strategy_for(options: TrainOptions, workload: Workload) -> Strategy:
    """The strategy of ``options``. Raises RankupError if ``workload`` does not support it."""
    name = AUTO if options.strategy == "auto" else options.strategy  # with one process it becomes ``none``
    row = STRATEGIES[name]
    members = {argument: _member(workload, member, options) for argument, member in row.members.items()}
    return make_strategy(name, **{option: getattr(options, option) for option in row.options}, **members)


def _member(workload: Workload, member: str, options: TrainOptions) -> Callable[..., Any]:
    found = getattr(workload, member, None)
    if not callable(found):
        raise RankupError(
            "strategy-not-supported",
            f"the strategy {options.strategy} cannot train {options.name}: the workload has no {member}",
            hint=f"choose another strategy, or write the member {member} (docs/reference/strategies.md)",
        )
    made: Callable[..., Any] = found
    return made
