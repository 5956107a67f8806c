"""The state of a run: what a resume needs, and nothing that can be recomputed. ``docs/reference/snapshots.md``.

``tensors``: models and optimizers by parameter name, in any strategy's layout. ``own``: what belongs to this rank, its
generators and, in the middle of an epoch, its BatchNorm statistics; and what was kept, which is the same on all ranks
and stands with the first rank of each node. ``facts``: where the run is, and what it must be to go on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.optim import Optimizer

from rankup.errors import RankupError
from rankup.runtime import registered_state
from rankup.runtime.seed import derive, rng_state, seed_everything, set_rng_state
from rankup.snapshots.state import State
from rankup.strategies import state as by_name

if TYPE_CHECKING:
    from rankup.runtime.run import Run


class Stateful(Protocol):
    """Anything that can be kept: schedules, averages, counters. The same on all ranks, unless ``per_rank`` is True;
    the same in every repetition of a training, unless ``timed`` is.

    ``per_rank`` things may have ``load_rank_states(states)``: it is called instead of ``load_state_dict`` where another
    number of ranks saved them. Each old rank's state is given to one rank; some ranks get an empty list. A thing
    without it begins anew there."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


def collect(run: Run, *, kept: bool) -> State:
    """The live state of this rank; ``kept`` says whether what was kept is to be in it, if it is not ``per_rank``."""
    own: dict[str, Any] = {"rng": rng_state()}
    if run.buffers_differ:
        own["buffers"] = [dict(model.named_buffers()) for model, _ in run.prepared]
    lasting = {
        id(value)
        for _, optimizer in run.prepared
        if isinstance(optimizer, Optimizer)
        for fields in optimizer.state.values()
        for value in fields.values()
        if isinstance(value, torch.Tensor)
    }
    registered, alike = registered_state.collect(run, kept=kept)
    own |= registered
    return State(
        {
            str(index): by_name.state(run.strategy, model, optimizer)
            for index, (model, optimizer) in enumerate(run.prepared)
        },
        own,
        {
            "positions": [{**feed.cut, "at": list(feed.position.resume())} for feed in run.feeds],
            "prepared": len(run.prepared),
            "kept": sorted(run.registered),
            "seed": run.seed,
            "world_size": run.world.world_size,
            "strategy": run.strategy.name,
            "shards": run.strategy.shards,
            "precision": run.precision.name,
            "metrics": _numbers(run.metrics),
            "step": run.steps_done,
        },
        frozenset(lasting),
        alike,
    )


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    numbers = {}
    for name, value in metrics.items():
        try:
            numbers[name] = float(value)  # of a tensor, too
        except (TypeError, ValueError, RuntimeError):
            raise RankupError(
                "bad-metric",
                f"run.metrics[{name!r}] is a {type(value).__name__}, and a metric is one number",
                exit_code=1,
            ) from None
    return numbers


def check(run: Run, facts: Mapping[str, Any]) -> None:
    """An error where the run is another one than that which ``facts`` tell of; nothing has been changed then."""
    if facts["seed"] != run.seed:
        raise RankupError(
            "other-seed",
            f"the state was taken with seed {facts['seed']}, this run has {run.seed}: the order would differ",
            hint=f"rankup.init(seed={facts['seed']})",
        )
    if facts["kept"] != sorted(run.registered):
        raise RankupError(
            "other-kept",
            f"the state keeps {facts['kept']}, this run {sorted(run.registered)}",
            hint="call run.register with the same names before loading",
        )
    if (saved := facts.get("shards")) and run.strategy.shards and saved != run.strategy.shards:
        raise RankupError(
            "other-virtual-shards",
            f"the state was taken with {saved} virtual shards, this run has {run.strategy.shards}: another model",
            hint=f"virtual_shards={saved}",
        )
    for what, theirs, mine in (
        ("models", facts["prepared"], len(run.prepared)),
        ("positions", len(facts["positions"]), len(run.feeds)),
    ):
        if theirs != mine:
            raise RankupError(
                "other-prepared",
                f"the state holds {theirs} {what}, this run {mine}",
                hint="call run.prepare as the run did that saved it, before loading",
            )
    for feed, position in zip(run.feeds, facts["positions"], strict=True):
        for name, value in feed.cut.items():
            if position[name] != value:
                raise RankupError(
                    "other-data",
                    f"the state was taken with {name} {position[name]}, this run has {value}: the position in the "
                    "epoch would mean other samples",
                    hint="prepare the same data in the same way",
                )


def restore(
    run: Run,
    tensors: Mapping[str, Any],
    own: Mapping[str, Any] | None,
    kept: Mapping[str, Any],
    facts: Mapping[str, Any],
    others: Callable[[], list[dict[str, Any]]] = list,
) -> None:
    """Put back what ``collect`` gave; ``own`` is None where another number of ranks saved it, and ``others`` gives
    the ``own`` of those that this rank takes over. ``check`` it first."""
    for index, (model, optimizer) in enumerate(run.prepared):
        by_name.load_state(run.strategy, model, optimizer, tensors[str(index)])
    registered_state.restore(run, kept, own, others)
    for feed, position in zip(run.feeds, facts["positions"], strict=True):
        feed.position.epoch, feed.position.step = position["at"]
        feed.position.ended = False
    run.steps_done = facts["step"]
    run.metrics = dict(facts["metrics"])
    if own is None:
        # Another number of ranks: nobody's generators are ours, so begin a stream that no rank has had.
        seed_everything(derive(run.seed, "resumed", run.world.world_size, run.world.rank, facts["step"]))
        return
    with torch.no_grad():
        for (model, _), buffers in zip(run.prepared, own.get("buffers", []), strict=False):
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
    run.buffers_differ = "buffers" in own
    set_rng_state(dict(own["rng"]))
