"""Which strategy a run gets, from what was asked for and how many processes there are."""

from __future__ import annotations

from rankup.core.registry import target_of
from rankup.errors import RankupError
from rankup.strategies import FOR_SCRIPTS, STRATEGIES, Strategy, make_strategy
from rankup.world import World


def choose_strategy(wanted: str | Strategy, world: World) -> Strategy:
    """``auto``, a name for scripts, or a strategy that a workload's loop has made.

    One process has nobody to average, shard or pipeline with: there every strategy but dp is ``none``.
    """
    if isinstance(wanted, str):
        if wanted == "auto":
            wanted = "ddp" if world.world_size > 1 else "none"
        target_of("strategy", wanted, STRATEGIES)
        if wanted not in FOR_SCRIPTS:
            raise RankupError(
                "strategy-for-workloads",
                f"strategy {wanted} needs a workload: it changes more than a script's own loop can know",
                hint=f"in a script: {', '.join(FOR_SCRIPTS)}; or `rankup train module:Class --strategy {wanted}`",
            )
        wanted = make_strategy(wanted)
    if wanted.name in ("none", "dp") and world.world_size > 1:
        raise RankupError(
            "strategy-without-sync",
            f"strategy {wanted.name} would train {world.world_size} models that never meet",
            hint="strategy ddp or auto, or one process",
        )
    if wanted.name != "dp" and world.world_size == 1:
        return make_strategy("none")
    return wanted
