"""``rankup.init(exact="any-world")``: what it asks for, and what does not go with it."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import IterableDataset

from rankup.errors import RankupError
from rankup.runtime.checkpointing.registered import Stateful
from rankup.runtime.context import RunContext
from rankup.runtime.device import deterministic_kernels
from rankup.strategies import Strategy
from rankup.strategies.any_world import AnyWorld
from rankup.world import World

EXACT = ("same-world", "any-world")


def shards_for(exact: str, virtual_shards: int) -> int:
    """How many virtual shards ``rankup.init`` was asked for; 0 for none."""
    if exact not in EXACT:
        raise RankupError(
            "unknown-exact", f"there is no exactness {exact!r}", hint=f"one of {', '.join(EXACT)}"
        )
    if virtual_shards < 1:
        raise RankupError("bad-virtual-shards", f"virtual_shards must be at least 1, got {virtual_shards}")
    return virtual_shards if exact == "any-world" else 0


def any_world(wanted: str | Strategy, world: World, shards: int, device: torch.device) -> AnyWorld:
    """The strategy; and kernels that give the same bits wherever they run."""
    name = wanted if isinstance(wanted, str) else wanted.name
    if name not in ("auto", "none", "ddp"):
        raise RankupError(
            "any-world-strategy",
            f"strategy {name} sums in an order that depends on the number of processes",
            hint='strategy auto with exact="any-world"',
        )
    if world.world_size > shards:
        raise RankupError(
            "too-few-virtual-shards",
            f"virtual_shards={shards} leaves nothing for some of {world.world_size} processes",
            hint="as many as the most processes that it may ever run on; another number trains another model",
        )
    if device.type == "cpu":
        # A kernel's sum depends on how many threads it is cut for, and one is what every process has.
        torch.set_num_threads(1)
    else:
        deterministic_kernels()
    return AnyWorld(shards, world.rank, world.world_size)


def check_adaptations(dataset: Any, *, accumulate: int, sync_batchnorm: bool) -> None:
    """An error for what ``prepare`` cannot do then."""
    for what, given, hint in (
        ("accumulate=", accumulate > 1, "more virtual shards: each is a micro-batch"),
        ("sync_batchnorm=", sync_batchnorm, "leave it out: statistics are those of a virtual shard"),
        ("an IterableDataset", isinstance(dataset, IterableDataset), "a map-style Dataset"),
    ):
        if given:
            raise RankupError("not-any-world", f'{what} does not go with exact="any-world"', hint=hint)


def check_registered(name: str, thing: Stateful) -> None:
    """An error for state that each rank has of its own: a rank computes several shards, and how many depends on the
    number of ranks."""
    if getattr(thing, "per_rank", False) and not getattr(thing, "timed", False):
        raise RankupError(
            "not-any-world",
            f'run.register({name}=…, per_rank=True) does not go with exact="any-world": a rank computes one virtual '
            "shard after another, and would carry what it keeps from one to the next",
            hint="leave exact= out for a loop that carries a state of each rank's own",
            exit_code=1,
        )


def check_whole_batch(run: RunContext) -> None:
    """An error in a loop's body, which a rank runs once for each virtual shard of its own: what all ranks add up there
    depends on how many they are, and where they have different numbers of shards, some would wait for ever."""
    if run.batch is not None and run.strategy.shards:
        raise RankupError(
            "shard-sum",
            'with exact="any-world" a loop\'s body sees one virtual shard, and run.sum and run.mean would add up some '
            "shards of the batch",
            hint="run.meter.add(…) in the body, which knows; or add up on each rank, and sum behind the inner loop",
            exit_code=1,
        )


def check_whole(run: RunContext) -> None:
    """An error where the buffers at hand are those of one virtual shard, and no state of the run."""
    in_a_body = run.strategy.shards > 0 and run.batch is not None
    if in_a_body and any(True for model in run.models for _ in model.buffers()):
        raise RankupError(
            "shard-state",
            'with exact="any-world" the buffers in a loop\'s body are those of one virtual shard',
            hint="take the state behind the inner loop",
            exit_code=1,
        )
