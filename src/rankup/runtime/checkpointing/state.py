"""The state of a run: what a resume needs, and nothing that can be recomputed. ``docs/reference/snapshots.md``.

``tensors``: models and optimizers by parameter name, in any strategy's layout. ``rank_state``: what belongs to this
rank, its generators and, in the middle of an epoch, its BatchNorm statistics; and what was registered, which is the
same on all ranks and is saved by the first rank of each node. ``metadata``: the position of the run, and what a run
must match to resume from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from rankup.errors import RankupError
from rankup.runtime.checkpointing import registered_state
from rankup.runtime.checkpointing.carried.watch import CarriedVariables
from rankup.runtime.checkpointing.check_settings import ResumeSettings
from rankup.runtime.checkpointing.frozen import Frozen
from rankup.runtime.checkpointing.later_loops import LaterLoops
from rankup.runtime.checkpointing.loop_variables import LoopVariables
from rankup.runtime.checkpointing.plain_values import PlainValues
from rankup.runtime.context import RunContext
from rankup.runtime.data.batches import DataFeed, sampled_order
from rankup.runtime.data.stream import StreamFeed
from rankup.runtime.distributed.buffers import averaged_buffers
from rankup.runtime.loop.accumulation import PendingGradients
from rankup.runtime.seed import derive, rng_state, seed_everything, set_rng_state
from rankup.runtime.tracing.fingerprint import fingerprint
from rankup.snapshots.state import SnapshotState
from rankup.strategies import state as by_name

_SOME = 8  # values of each parameter


@dataclass
class StateParts:
    """What contributes to the state of a run, besides its context."""

    pending: PendingGradients
    frozen: Frozen
    plain: PlainValues
    carried: CarriedVariables
    settings: ResumeSettings
    later: LaterLoops
    variables: LoopVariables
    stopped: bool = False  # the run ends with the state that is taken: nothing is trained after it
    begun: str = ""  # a digest of some of the weights that this attempt began with
    begun_saved: str = ""  # likewise, of the training that is resumed
    _noted: int = 0  # models

    @classmethod
    def of(cls, run: RunContext, settings: ResumeSettings) -> StateParts:
        plain = PlainValues(run)
        carried, later = CarriedVariables(run, plain), LaterLoops(run)
        variables = LoopVariables(plain.owned)
        return cls(PendingGradients(run), Frozen(run), plain, carried, settings, later, variables)

    def note_begin(self, run: RunContext) -> None:
        """Note what the script begins with, once for each stage, which has more prepared models than the one before.
        Called before anything is restored: by a loop, or by ``run.state`` before it."""
        if len(run.prepared) > self._noted:
            self._noted = len(run.prepared)
            self.begun = self.begun or _some_weights(run)
            self.frozen.begin()
            self.plain.begin()

    def of_another_training(self) -> bool:
        """Whether the training that is resumed began with other weights than this attempt."""
        return bool(self.begun_saved) and self.begun != self.begun_saved


def _some_weights(run: RunContext) -> str:
    """Of each parameter that this rank holds as a whole."""
    held = [
        each
        for model in run.models
        for each in model.parameters()
        if not (hasattr(each, "to_local") or is_lazy(each) or each.is_meta)
    ]
    return fingerprint([each.detach().reshape(-1)[:_SOME].clone() for each in held])


def collect(run: RunContext, parts: StateParts, *, shared: bool, gradients: bool) -> SnapshotState:
    """The live state of this rank. ``shared``: whether to include what was registered without ``per_rank``;
    ``gradients``: whether to include gradients that wait for a step."""
    rank_state: dict[str, Any] = {"rng": rng_state(), "plain": parts.plain.state()}
    if openings := [feed.opening for feed in run.feeds if isinstance(feed, StreamFeed)]:
        rank_state["streams"] = openings
    if run.world.is_main:
        rank_state["carried"] = parts.carried.state()
        rank_state["begun"] = parts.begun
    if run.world.is_main and (layout := run.strategy.layout()) is not None:
        rank_state["layout"] = layout
    if gradients:
        rank_state["gradients"] = parts.pending.state()
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
    return SnapshotState(
        {
            str(index): _with_buffers(run, model, by_name.state(run.strategy, model, optimizer))
            for index, (model, optimizer) in enumerate(run.prepared)
        },
        rank_state,
        {
            "positions": [_position(feed) for feed in run.feeds],
            "prepared": len(run.prepared),
            "loop": parts.later.state(),
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
            **({"stopped": True} if parts.stopped else {}),
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


def collect_to_save(run: RunContext, parts: StateParts, *, alone: bool, gradients: bool) -> SnapshotState:
    """The same for a snapshot; no collective if ``alone``. What was registered is the same on all ranks: one copy per
    node is enough."""
    taken = collect(run, parts, shared=run.world.local_rank == 0, gradients=gradients)
    taken.rank_state["loop_variables"] = parts.variables.state(parts.later.number)
    if run.buffers_differ and run.replicas > 1 and not alone:
        # This rank's buffers are in rank_state. Their mean is for another number of ranks, and for an export.
        for index, (model, _) in enumerate(run.prepared):
            means = {id(buffer): value for buffer, value in averaged_buffers(model, run.world.world_size)}
            whole = taken.tensors[str(index)]
            for name, buffer in model.named_buffers(remove_duplicate=False):
                for part in ("model", "buffers"):
                    if name in whole[part]:
                        whole[part][name] = means[id(buffer)]
    return taken


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


def check(run: RunContext, parts: StateParts, metadata: Mapping[str, Any]) -> None:
    """An error, before anything is changed, if ``metadata`` belongs to another run."""
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
    recorded = parts.settings.check(metadata)
    if registered_state.chosen(metadata["registered"]) != registered_state.names(run):
        raise RankupError(
            "other-registered",
            f"the state has {metadata['registered']} registered, this run has {registered_state.names(run)}",
            hint="call run.register with the same names before loading",
        )
    run.strategy.check_metadata(metadata)
    for what, theirs, mine in (
        ("models", metadata["prepared"], len(run.prepared)),
        ("positions", len(metadata["positions"]), len(run.feeds)),
    ):
        if theirs != mine:
            raise RankupError(
                "other-prepared",
                f"the state holds {theirs} {what}, this run {mine}",
                hint="call run.prepare as the run did that saved it, before loading",
            )
    parts.frozen.check(metadata["frozen"])
    if recorded:
        return
    for feed, position in zip(run.feeds, metadata["positions"], strict=True):
        for name, value in feed.cut.items():
            if position[name] != value:
                raise RankupError(
                    "other-data",
                    f"the state was taken with {name} {position[name]}, this run has {value}: the position in the "
                    "epoch would mean other samples",
                    hint="prepare the same data in the same way",
                )


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
    tensors = parts.settings.adjust(tensors)
    for index, (model, optimizer) in enumerate(run.prepared):
        by_name.load_state(run.strategy, model, optimizer, tensors[str(index)])
        with torch.no_grad():
            _load_buffers(run, model, tensors[str(index)]["buffers"])
    registered_state.restore(run, parts.settings.adjust_registered(first["registered"]), rank_state, others)
    parts.plain.load((first if rank_state is None else rank_state).get("plain", {}))
    parts.carried.load(first.get("carried", {}))
    parts.begun_saved = first.get("begun", "")
    parts.variables.load(
        (first if rank_state is None else rank_state).get("loop_variables", {}), own=rank_state is not None
    )
    for feed, position in zip(run.feeds, metadata["positions"], strict=True):
        feed.position.load(position)
        if (
            (sampled := sampled_order(feed)) is not None
            and "order" in position
            and not parts.settings.changed
        ):
            sampled.check_repeated(feed.position.epoch, position["order"])
    if "streams" in first:
        streams = [feed for feed in run.feeds if isinstance(feed, StreamFeed)]
        openings = [None] * len(streams) if rank_state is None else rank_state["streams"]
        for feed, opening in zip(streams, openings, strict=True):
            feed.resume(opening)
    parts.settings.finish(metadata)
    run.global_step = run.steps_reached = metadata["step"]
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
    parts.pending.load(rank_state.get("gradients", []))
    set_rng_state(dict(rank_state["rng"]))
