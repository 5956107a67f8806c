"""Selects the strategy of a run, from the user's choice and the number of processes."""

from __future__ import annotations

from rankup.errors import RankupError
from rankup.strategies import (
    AUTO,
    EXACT,
    STRATEGIES,
    Strategy,
    make_exact_strategy,
    make_strategy,
    names_for_scripts,
)
from rankup.world import World


def choose_strategy(
    wanted: str | Strategy, world: World, *, exact: str = "same-world", virtual_shards: int = 4
) -> Strategy:
    """``auto``, a name for scripts, or a strategy that a workload's loop has made; or the one that ``exact`` requires.

    With one process there is nothing to average, shard or pipeline: every strategy except dp is ``none``.
    """
    if exact not in EXACT:
        raise RankupError(
            "unknown-exact", f"there is no exactness {exact!r}", hint=f"one of {', '.join(EXACT)}"
        )
    if EXACT[exact]:
        return make_exact_strategy(
            exact,
            virtual_shards=virtual_shards,
            rank=world.rank,
            world_size=world.world_size,
            instead_of=wanted if isinstance(wanted, str) else wanted.name,
        )
    if isinstance(wanted, str):
        if wanted == "auto":
            wanted = AUTO if world.world_size > 1 else "none"
        if wanted in STRATEGIES and not STRATEGIES[wanted].for_scripts:
            raise RankupError(
                "strategy-for-workloads",
                f"strategy {wanted} needs a workload: it changes more than a script's own loop can know",
                hint=f"in a script: {', '.join(names_for_scripts())}; or "
                f"`rankup train module:Class --strategy {wanted}`",
            )
        wanted = make_strategy(wanted)
    if wanted.one_process and world.world_size > 1:
        raise RankupError(
            "strategy-without-sync",
            f"strategy {wanted.name} would train {world.world_size} models that never meet",
            hint="strategy ddp or auto, or one process",
        )
    if world.world_size == 1 and not wanted.one_process:
        return make_strategy("none")
    return wanted
