"""The state of a run: what a resume needs, and nothing that can be recomputed. ``docs/reference/snapshots.md``.

``tensors``: models and optimizers by parameter name, in any strategy's layout. ``rank_state``: what belongs to this
rank, its generators and, in the middle of an epoch, its BatchNorm statistics; and what was registered, which is the
same on all ranks and is saved by the first rank of each node. ``metadata``: the position of the run, and what a run
must match to resume from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from torch.optim import Optimizer

from rankup.errors import RankupError
from rankup.runtime.checkpointing import registered_state
from rankup.runtime.checkpointing.state_parts import StateParts
from rankup.runtime.context import RunContext
from rankup.runtime.data.batches import DataFeed, sampled_order
from rankup.runtime.distributed.buffers import averaged_buffers
from rankup.runtime.seed import derive, rng_state, seed_everything, set_rng_state
from rankup.strategies import state as by_name
from rankup.strategies.clipping import local

if TYPE_CHECKING:
    from rankup.runtime.data.stream import StreamFeed
    from rankup.snapshots.state import SnapshotState


def _streams(run: RunContext) -> list[StreamFeed]:
    """The feeds whose number of steps nobody knows."""
    return cast("list[StreamFeed]", [feed for feed in run.feeds if feed.is_stream])


def collect(run: RunContext, parts: StateParts, *, shared: bool, gradients: bool) -> SnapshotState:
    """The live state of this rank. ``shared``: whether to include what was registered without ``per_rank``;
    ``gradients``: whether to include gradients that wait for a step."""
    rank_state: dict[str, Any] = {"rng": rng_state()}
    if streams := _streams(run):
        rank_state["streams"] = [feed.state() for feed in streams]
    if parts.watch is not None:
        rank_state |= parts.watch.state()
    if run.world.is_main and (layout := run.strategy.layout()) is not None:
        rank_state["layout"] = layout
    if gradients:
        rank_state["gradients"] = _gradients(run)
    if run.buffers_differ:
        rank_state["buffers"] = [dict(model.named_buffers()) for model, _ in run.prepared]
    stable = {
        id(value)
        for _, optimizer in run.prepared
        # An optimizer of another package may change its state outside of its step, as SAM does, also through ``.data``.
        if isinstance(optimizer, Optimizer) and type(optimizer).__module__.startswith("torch.optim.")
        for fields in optimizer.state.values()
        for value in fields.values()
        if isinstance(value, torch.Tensor)
    }
    registered, must_match = registered_state.collect(run, shared=shared)
    rank_state |= registered
    from rankup.snapshots.state import SnapshotState

    return SnapshotState(
        {
            str(index): _with_buffers(run, model, by_name.state(run.strategy, model, optimizer))
            for index, (model, optimizer) in enumerate(run.prepared)
        },
        rank_state,
        {
            "positions": [_position(feed) for feed in run.feeds],
            "prepared": len(run.prepared),
            "loop": dict(parts.loop),
            "begun": parts.begun,
            "registered": registered_state.names(run),
            "seed": run.seed,
            "world_size": run.world.world_size,
            "strategy": run.strategy.name,
            **run.strategy.metadata(),
            "precision": run.precision.name,
            "settings": parts.settings.in_force,
            "gradients": gradients,
            "frozen": parts.frozen.state(),
            "metrics": {name: float(value) for name, value in run.metrics.items()},
            "step": run.steps_reached,
        },
        frozenset(stable),
        must_match,
        frozenset(
            f"{index}/{part}/{name}"
            for index, (model, _) in enumerate(run.prepared)
            for name in run.strategy.buffers(model)
            for part in ("model", "buffers")
        ),
    )


def collect_to_save(run: RunContext, parts: StateParts, *, gradients: bool) -> SnapshotState:
    """The same for a snapshot. A collective. What was registered is the same on all ranks: one copy per node is
    enough."""
    taken = collect(run, parts, shared=run.world.local_rank == 0, gradients=gradients)
    if run.buffers_differ and run.replicas > 1:
        # This rank's buffers are in rank_state. Their mean is for another number of ranks, and for an export.
        for index, (model, _) in enumerate(run.prepared):
            means = {id(buffer): value for buffer, value in averaged_buffers(model, run.world.world_size)}
            whole = taken.tensors[str(index)]
            for name, buffer in model.named_buffers(remove_duplicate=False):
                for part in ("model", "buffers"):
                    if name in whole[part]:
                        whole[part][name] = means[id(buffer)]
    return taken


def _gradients(run: RunContext) -> list[dict[str, torch.Tensor]]:
    """Those of this rank that wait for a step, for each prepared model by parameter name."""
    return [
        {name: local(p.grad) for name, p in model.named_parameters() if p.grad is not None}
        for model, _ in run.prepared
    ]


def _load_gradients(run: RunContext, saved: list[dict[str, torch.Tensor]]) -> None:
    for (model, _), gradients in zip(run.prepared, saved, strict=False):
        for name, parameter in model.named_parameters():
            if name in gradients:
                parameter.grad = torch.zeros_like(parameter)
                local(parameter.grad).copy_(gradients[name])


def _position(feed: DataFeed) -> dict[str, Any]:
    position = feed.position.state()
    epoch, step = position["at"]
    if step and (sampled := sampled_order(feed)) is not None:
        position["order"] = sampled.digest(epoch)
    return {**feed.cut, **position}


def _with_buffers(run: RunContext, model: nn.Module, saved: dict[str, Any]) -> dict[str, Any]:
    """``saved`` and the buffers that are not in the model's ``state_dict``: the training depends on them as well."""
    buffers = {
        name: buffer.detach()
        for name, buffer in run.strategy.buffers(model).items()
        if name not in saved["model"]
    }
    return {**saved, "buffers": buffers}


def target(
    run: RunContext, model: nn.Module, optimizer: Optimizer | None, saved: Mapping[str, Any]
) -> dict[str, Any]:
    """A state of this run's layout to load into; ``saved`` is what was saved of it, with tensors on ``meta``."""
    buffers = {
        name: torch.empty(buffer.shape, dtype=buffer.dtype)
        for name, buffer in saved.get("buffers", {}).items()
    }
    return {**by_name.target(run.strategy, model, optimizer, saved), "buffers": buffers}


def _load_buffers(run: RunContext, model: nn.Module, saved: Mapping[str, torch.Tensor]) -> None:
    """Restore buffers, also those that the model creates or resizes in its first forward."""
    if not run.strategy.every_name:  # a stage: its own buffers, which have other names in it
        for name, held in run.strategy.buffers(model).items():
            if name in saved and saved[name].shape == held.shape:
                held.copy_(saved[name])
        return
    for name, value in saved.items():
        path, _, last = name.rpartition(".")
        owner = model.get_submodule(path)
        live = owner._buffers.get(last)
        if live is not None and live.shape == value.shape:
            live.copy_(value)
        else:
            device = next((t.device for t in (*model.parameters(), *model.buffers())), torch.device("cpu"))
            owner.register_buffer(last, value.to(device), persistent=False)


def check(
    run: RunContext, parts: StateParts, metadata: Mapping[str, Any], found_again: Iterable[str] = ()
) -> None:
    """An error, before anything is changed, if ``metadata`` belongs to another run. ``found_again``: names that are
    registered by now, and whose values the state has noted."""
    if metadata["seed"] != run.seed:
        raise RankupError(
            "other-seed",
            f"the state was taken with seed {metadata['seed']}, this run has {run.seed}: the order would differ",
            hint=f"rankup.init(seed={metadata['seed']})",
        )
    if metadata.get("gradients") and metadata["world_size"] != run.world.world_size:
        raise RankupError(
            "mid-window",
            "the state was taken in the middle of a window of gradients that are accumulated by hand, of which each of "
            f"{metadata['world_size']} processes has its own",
            hint=f"resume with {metadata['world_size']} processes; or accumulate by prepare(…, accumulate=n), "
            "run.backward and run.step, whose windows are never saved in the middle",
        )
    parts.settings.check(metadata)
    saved, mine = metadata["registered"], registered_state.names(run)
    if sorted({*saved, *found_again}) != mine:
        raise RankupError(
            "other-registered",
            f"the state has {saved} registered, this run has {mine}",
            hint="register what the state has, and no other object with a state of its own: it would begin anew",
        )
    run.strategy.check_metadata(metadata)
    for what, theirs, ours in (
        ("models", metadata["prepared"], len(run.prepared)),
        ("positions", len(metadata["positions"]), len(run.feeds)),
    ):
        if theirs != ours:
            raise RankupError(
                "other-prepared",
                f"the state holds {theirs} {what}, this run {ours}",
                hint="call run.prepare as the run did that saved it, before loading",
            )
    parts.frozen.check(metadata["frozen"])


def restore(
    run: RunContext,
    parts: StateParts,
    tensors: Mapping[str, Any],
    rank_state: Mapping[str, Any] | None,
    first: Mapping[str, Any],
    metadata: Mapping[str, Any],
    others: Callable[[], list[dict[str, Any]]] = list,
) -> None:
    """Put back what ``collect`` gave, after ``check``. ``first``: the ``rank_state`` of a rank that has what was
    registered. ``rank_state`` is None if another number of ranks saved it: then ``others`` gives the ``rank_state`` of
    the old ranks that this one takes over."""
    parts.frozen.load(metadata["frozen"])
    tensors, registered = parts.settings.adjust(tensors, first["registered"])
    for index, (model, optimizer) in enumerate(run.prepared):
        by_name.load_state(run.strategy, model, optimizer, tensors[str(index)])
        with torch.no_grad():
            _load_buffers(run, model, tensors[str(index)]["buffers"])
    registered_state.restore(run, registered, rank_state, others)
    for feed, position in zip(run.feeds, metadata["positions"], strict=True):
        feed.position.load(position)
        if (
            (sampled := sampled_order(feed)) is not None
            and "order" in position
            and not parts.settings.changed
        ):
            sampled.check_repeated(feed.position.epoch, position["order"])
    if "streams" in first:
        streams = _streams(run)
        states = [None] * len(streams) if rank_state is None else rank_state["streams"]
        for feed, state in zip(streams, states, strict=True):
            feed.load(state)
    parts.settings.finish()
    run.stand_at(metadata["step"])
    run.metrics = dict(metadata["metrics"])
    for optimizer in run.optimizers:
        if metadata["step"]:  # else torch warns of schedules that step before their optimizer has
            optimizer._opt_called = True  # type: ignore[attr-defined]
    if rank_state is None:
        # Another number of ranks: no saved generator belongs to this rank, so begin a stream that no rank has had.
        seed_everything(derive(run.seed, "resumed", run.world.world_size, run.world.rank, metadata["step"]))
        return
    with torch.no_grad():
        for (model, _), buffers in zip(run.prepared, rank_state.get("buffers", []), strict=False):
            for name, buffer in model.named_buffers():
                if name in buffers:
                    buffer.copy_(buffers[name])
    run.buffers_differ = "buffers" in rank_state
    run.strategy.restore_layout(rank_state.get("layout"))
    _load_gradients(run, rank_state.get("gradients", []))
    set_rng_state(dict(rank_state["rng"]))
