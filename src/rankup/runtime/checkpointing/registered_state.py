"""The state of what was registered, over ranks: equal on all of them, and saved by the first rank of each node.

The state of ``per_rank`` things differs between ranks, and each rank saves its own. In a thing that a user made (an
average of weights), small tensors may differ between ranks if they have the shape of batch statistics of the run's
models, which they may follow: each rank saves its own of these. In a module only those of a BatchNorm may. All else is
compared at the save, by a value or a fingerprint; a difference is an error that names the thing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from rankup.errors import RankupError
from rankup.runtime.checkpointing.adapters import Adapter, Stateful
from rankup.runtime.checkpointing.registered import Declared, Value, Values, as_stateful
from rankup.runtime.context import RunContext
from rankup.runtime.data.batches import sampled_order
from rankup.runtime.digest import SMALL, fingerprint
from rankup.runtime.distributed.control import same_on_all
from rankup.runtime.pytree import map_tensors, tensors_in
from rankup.runtime.unregistered.marks import SIMPLE
from rankup.runtime.unregistered.walk import PARTS, Walk
from rankup.strategies.inner_optimizers import with_inner
from rankup.strategies.replicas import batch_statistics

if TYPE_CHECKING:
    from rankup.runtime.checkpointing.identities import Held

# Among the registered by themselves; the loss scale only under fp16.
METER, RECORDS, LOSS_SCALE = "run.meter", "run.records", "loss_scale"
_SHOWN = 40  # characters of a value in a message
_Shape = tuple[torch.Size, bool]  # and whether it has floating-point numbers: an average may be more precise


def register(run: RunContext, things: Mapping[str, Any], *, per_rank: bool) -> Values:
    """See ``Run.register``."""
    prepared = (*run.models, *run.optimizers, *(part for model in run.models for part in model.children()))
    for name, thing in things.items():
        if name in run.registered:
            raise RankupError("registered-twice", f"run.register({name}=…): the name is taken")
        has = Declared(
            run.values,
            run.device,
            prepared,
            partial(_held, run),
            lambda thing: declared(run, before=thing)[0],
        )
        for key, stateful in as_stateful(name, thing, has).items():
            if not isinstance(stateful, Value):
                run.values._add_object(key, thing)
            if per_rank:
                stateful.per_rank = True  # type: ignore[attr-defined]
            if is_per_rank(stateful) and not getattr(stateful, "timed", False):
                run.strategy.check("per_rank_state", name=name)
            run.registered[key] = stateful
    return run.values


def declared(run: RunContext, before: Any = None) -> tuple[set[Any], set[int], dict[str, Any]]:
    """Ids of all that snapshots hold; of the optimizers whose state they hold, but not their other attributes; and
    what a run has by itself, by the names under which its attributes are looked at. ``before``: without this registered
    thing, and those that were registered after it."""
    optimizers = {id(each) for optimizer in run.optimizers for each in with_inner(optimizer)}
    known: set[Any] = {
        id(tensor) for model in run.models for tensor in (*model.parameters(), *model.buffers())
    }
    known |= {(id(module), PARTS) for model in run.models for module in model.modules()}  # see model_form
    for thing in run.registered.values():
        held = thing.thing if isinstance(thing, Adapter) else thing
        if before is not None and held is before:
            break
        known |= Walk((known | optimizers) - {id(held)}, optimizers).look({"": held}).seen
        if isinstance(thing, Adapter):
            known |= thing.kept()
        if isinstance(held, nn.Module):
            known |= {id(tensor) for tensor in (*held.parameters(), *held.buffers())}
    for feed in run.feeds:
        if (sampled := sampled_order(feed)) is not None:
            known |= sampled.derived()
        if (restored := getattr(feed, "restored", None)) is not None:
            known.add(id(restored))
    data = [getattr(feed, "dataset", None) for feed in run.feeds]
    own: dict[str, list[Any]] = {"model": [*run.models], "optimizer": [*run.optimizers], "dataset": data}
    named = {
        f"{name}{i + 1 if i else ''}": each for name, group in own.items() for i, each in enumerate(group)
    }
    return known, optimizers, named


def whole_things(run: RunContext) -> set[int]:
    """Ids of what was prepared or registered: a name of the script that has one of them must keep it."""
    registered = (thing.thing if isinstance(thing, Adapter) else thing for thing in run.registered.values())
    return {id(each) for each in (*run.models, *run.optimizers, *registered) if type(each) not in SIMPLE}


def register_own(run: RunContext, meter: Stateful) -> None:
    """What a run registers by itself."""
    run.registered |= {METER: meter, RECORDS: run.records}
    if (scaler := run.gradients.scaler) is not None:
        run.registered[LOSS_SCALE] = scaler


def _held(run: RunContext) -> Held:
    """What registered things hold; made when something is registered, since it opens more modules."""
    if run.held is None:
        from rankup.runtime.checkpointing.identities import Held

        run.held = Held(run.forgotten)
    return run.held


def together(run: RunContext) -> AbstractContextManager[None]:
    """While the states of all things are taken, or set."""
    return run.held.together() if run.held is not None else nullcontext()


def loop_begins(run: RunContext) -> None:
    if run.held is None:
        return
    run.held.begin()
    left_out = []
    for thing in run.registered.values():
        if isinstance(thing, Adapter):
            thing.loop_begins()
            left_out += [path for path in getattr(thing, "left_out", ()) if path not in run.held.told]
    run.held.told.update(left_out)
    if left_out:
        run.print(f"not in snapshots, since run.forget names it: {', '.join(left_out)}")


def check(run: RunContext) -> None:
    """RankupError if a snapshot cannot contain something registered, or holds shards of tensors, which it could not put
    together. Checked when a loop begins and at its first steps, and not only at the first save."""
    with together(run):
        for name, thing in run.registered.items():
            _check_whole(run, name, thing.state_dict())


def _check_whole(run: RunContext, name: str, state: Any) -> None:
    sharded = next((tensor for tensor in tensors_in(state) if hasattr(tensor, "to_local")), None)
    if sharded is not None:
        raise RankupError(
            "sharded-registered",
            f"run.register({name}=…) holds a tensor of shape {tuple(sharded.shape)}, of which each rank has "
            "only a part",
            hint=f"under {run.strategy.name} parameters are sharded, and so are copies of them and the state of an "
            "optimizer: strategy ddp, or keep whole tensors (parameter.full_tensor(), on all ranks); for a second "
            "optimizer of the model: run.prepare(model, lambda p: …) once more",
            exit_code=1,
        )


def collect(run: RunContext, *, shared: bool) -> tuple[dict[str, Any], dict[str, str]]:
    """What goes into ``SnapshotState.rank_state``, and ``SnapshotState.must_match``. ``shared``: whether to include the
    state that is the same on all ranks."""
    rank_state: dict[str, Any] = {"registered": {}, "registered_small": {}}
    must_match: dict[str, str] = {}
    shapes = {_shape(buffer) for model in run.models for buffer, _ in batch_statistics(model)}
    with together(run):
        for name, thing in run.registered.items():
            state = thing.state_dict()
            _check_whole(run, name, state)  # a dict may have got copies of weights since the loop began
            if shared or is_per_rank(thing):
                rank_state["registered"][name] = state
            elif small := _small(thing, state, shapes):
                rank_state["registered_small"][name] = small
            if _is_compared(run, thing):
                must_match |= _by_part(name, thing, state, shapes)
    return rank_state, must_match


def compare(run: RunContext) -> None:
    """RankupError ``ranks-differ`` if something registered that a loss may depend on differs between ranks: a module,
    an optimizer, a schedule, a tensor. Lists, dicts, values and objects of the script are compared at a save alone,
    since most of them only note what happened. A collective.
    """
    if run.control is None or run.replicas < 2:
        return
    shapes = {_shape(buffer) for model in run.models for buffer, _ in batch_statistics(model)}
    mine = {}
    for name, thing in run.registered.items():
        if _is_compared(run, thing) and _may_be_used(thing):
            state = thing.state_dict()
            _check_whole(run, name, state)
            mine[name] = _compared(thing, state, shapes)
    if not same_on_all(run.control, "the comparison of what is registered", mine):
        from rankup.snapshots.alike import registered_differ

        error = registered_differ(run.control.gather("the comparison of what is registered", mine))
        if error is not None:
            raise error


def _may_be_used(thing: Stateful) -> bool:
    """By a loss."""
    by_itself = isinstance(thing, Adapter) and thing.kind in ("tensor", "array")
    return by_itself or isinstance(thing, (nn.Module, Optimizer, LRScheduler))


def _is_compared(run: RunContext, thing: Stateful) -> bool:
    return run.world.world_size > 1 and not is_per_rank(thing) and not getattr(thing, "timed", False)


def restore(
    run: RunContext,
    registered: Mapping[str, Any],
    rank_state: Mapping[str, Any] | None,
    others: Callable[[], list[dict[str, Any]]],
) -> None:
    """``registered`` is the state that all ranks share; ``rank_state`` is this rank's, None if another number of ranks
    saved it: then ``others()`` gives the states of the old ranks that this one takes over."""
    with together(run):
        anew = _restore(run, registered, rank_state, others)
    if anew:
        run.print(f"another number of processes: {', '.join(anew)} (per_rank) begin without a saved state")


def _restore(
    run: RunContext,
    registered: Mapping[str, Any],
    rank_state: Mapping[str, Any] | None,
    others: Callable[[], list[dict[str, Any]]],
) -> list[str]:
    """See ``restore``. The names of what begins without a saved state."""
    anew = []
    for name, thing in run.registered.items():
        if name not in registered and not is_per_rank(thing):
            continue  # a loss scale that was saved in another precision, or what was registered since
        if not is_per_rank(thing):
            small = rank_state.get("registered_small", {}).get(name, {}) if rank_state is not None else {}
            thing.load_state_dict(_united(registered[name], small) if small else registered[name])
        elif rank_state is not None:
            if name in rank_state["registered"]:  # else it is registered since
                thing.load_state_dict(rank_state["registered"][name])
        elif hasattr(thing, "load_rank_states"):
            thing.load_rank_states(
                [other["registered"][name] for other in others() if name in other["registered"]]
            )
        else:
            anew.append(name)
    return anew


def names(run: RunContext) -> list[str]:
    """The names of what the user registered."""
    return sorted(name for name in run.registered if name not in (METER, RECORDS, LOSS_SCALE))


def is_per_rank(thing: Stateful) -> bool:
    return bool(getattr(thing, "per_rank", False))


def _shape(tensor: torch.Tensor) -> _Shape:
    return tensor.shape, tensor.is_floating_point()


def _may_differ(tensor: torch.Tensor, shapes: set[_Shape]) -> bool:
    """Whether it may follow batch statistics, of which ``shapes`` are these."""
    return tensor.numel() * tensor.element_size() <= SMALL and _shape(tensor) in shapes


def _small(thing: Stateful, state: Any, shapes: set[_Shape]) -> dict[int, torch.Tensor]:
    """The tensors of a state that may differ, by their index among its tensors."""
    if isinstance(thing, Adapter) and thing.whole:
        return {}
    return {place: tensor for place, tensor in enumerate(tensors_in(state)) if _may_differ(tensor, shapes)}


def _united(state: Any, small: Mapping[int, torch.Tensor]) -> Any:
    places = iter(range(2**62))
    return map_tensors(lambda tensor: small.get(next(places), tensor), state)


def _by_part(name: str, thing: Stateful, state: Any, shapes: set[_Shape]) -> dict[str, str]:
    """What must be the same on all ranks, by a name that says what it is: of an object its attributes."""
    if not isinstance(thing, Adapter):
        return {name: _compared(thing, state, shapes)}
    found = {}
    for part, held in thing.parts(state).items():
        shown = repr(held["plain"]) if "plain" in held else ""
        found[f"{name}{part}"] = shown if 0 < len(shown) <= _SHOWN else _compared(thing, held, shapes)
    return found


def _compared(thing: Stateful, state: Any, shapes: set[_Shape]) -> str:
    if isinstance(thing, Value):
        return repr(state["value"])
    if isinstance(thing, Adapter) and thing.whole:
        return fingerprint(state)
    if isinstance(thing, nn.Module) and type(state) in (dict, OrderedDict):
        statistics = {id(buffer) for buffer, _ in batch_statistics(thing)}
        collected = {name for name, buffer in thing.named_buffers() if id(buffer) in statistics}
        return fingerprint({name: state[name] for name in state if name not in collected})
    return fingerprint(
        state, lambda tensor: torch.empty(0, dtype=tensor.dtype) if _may_differ(tensor, shapes) else tensor
    )
