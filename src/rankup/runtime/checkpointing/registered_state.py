"""The state of what was registered, over ranks: saved once, by the first rank of each node, and equal on all of them.

``per_rank`` things are each rank's own. Of a thing that a user made (an average of weights), small tensors may differ
between ranks as the batch statistics do that they follow: each rank saves its own of these. Everything else is
compared at the save, by a value or a fingerprint, and a difference is an error that names the thing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from rankup.errors import RankupError
from rankup.runtime.checkpointing.adapters import Adapter, Stateful
from rankup.runtime.checkpointing.registered import Value
from rankup.runtime.context import RunContext
from rankup.runtime.pytree import map_tensors
from rankup.runtime.tracing.fingerprint import SMALL, copied, fingerprint

# In Run.registered by themselves; the loss scale only under fp16.
METER, RECORDS, LOSS_SCALE = "run.meter", "run.records", "loss_scale"


def check_whole(run: RunContext) -> None:
    """RankupError where something registered holds shards of tensors, which no snapshot of it could put together: as a
    loop begins, and not when it is first saved."""
    for name, thing in run.registered.items():
        sharded: list[torch.Tensor] = []

        def note(tensor: torch.Tensor, found: list[torch.Tensor] = sharded) -> torch.Tensor:
            if hasattr(tensor, "to_local"):
                found.append(tensor)
            return tensor

        map_tensors(note, copied(thing.state_dict()))
        if sharded:
            raise RankupError(
                "sharded-registered",
                f"run.register({name}=…) holds a tensor of shape {tuple(sharded[0].shape)} of which each rank has a "
                "part only",
                hint=f"under {run.strategy.name} parameters are sharded, and so are copies of them: strategy ddp, "
                "or keep whole tensors (parameter.full_tensor(), on all ranks)",
                exit_code=1,
            )


def collect(run: RunContext, *, kept: bool) -> tuple[dict[str, Any], dict[str, str]]:
    """(this rank's part of ``State.own``, ``State.alike``). ``kept``: whether the state that all share goes into it."""
    own: dict[str, Any] = {"kept": {}, "kept_small": {}}
    alike = {}
    for name, thing in run.registered.items():
        state = thing.state_dict()
        if kept or is_per_rank(thing):
            own["kept"][name] = state
        elif small := _small(thing, state):
            own["kept_small"][name] = small
        if run.world.world_size > 1 and not is_per_rank(thing) and not getattr(thing, "timed", False):
            alike[name] = _compared(thing, state)
    return own, alike


def restore(
    run: RunContext,
    kept: Mapping[str, Any],
    own: Mapping[str, Any] | None,
    others: Callable[[], list[dict[str, Any]]],
) -> None:
    """``kept`` is the state that all ranks share; ``own`` this rank's, None where another number of ranks saved it:
    then ``others()`` are the own states of those ranks that this one takes over."""
    anew = []
    for name, thing in run.registered.items():
        if name == LOSS_SCALE and name not in kept:
            continue  # saved in another precision
        if not is_per_rank(thing):
            small = own.get("kept_small", {}).get(name, {}) if own is not None else {}
            thing.load_state_dict(_united(kept[name], small) if small else kept[name])
        elif own is not None:
            if name in own["kept"]:  # the meter of a run is in no snapshot of older versions
                thing.load_state_dict(own["kept"][name])
        elif hasattr(thing, "load_rank_states"):
            thing.load_rank_states([other["kept"][name] for other in others() if name in other["kept"]])
        else:
            anew.append(name)
    if anew:
        run.print(f"another number of processes: {', '.join(anew)} (per_rank) begin without a saved state")


def names(run: RunContext) -> list[str]:
    """What the user registered."""
    return chosen(run.registered)


def chosen(names: Iterable[str]) -> list[str]:
    """Of these names those that the user chose."""
    return sorted(name for name in names if name not in (METER, RECORDS, LOSS_SCALE))


def is_per_rank(thing: Stateful) -> bool:
    return bool(getattr(thing, "per_rank", False))


def warn_unused(run: RunContext) -> None:
    """After an epoch: a registered value that nobody touched is counted in a variable that no snapshot holds."""
    for name in run.values._unused():
        warnings.warn(
            f"run.register({name}=…): nothing has used run.values.{name} in an epoch. A snapshot holds "
            f"run.values.{name}, not the variable that was passed: write run.values.{name} = …",
            stacklevel=2,
        )


def _is_small(tensor: torch.Tensor) -> bool:
    return tensor.numel() * tensor.element_size() <= SMALL


def _small(thing: Stateful, state: Any) -> dict[int, torch.Tensor]:
    """The small tensors of a state by their place among its tensors; none of an adapter's, which are compared."""
    found: dict[int, torch.Tensor] = {}
    if isinstance(thing, Adapter):
        return found
    tensors: list[torch.Tensor] = []
    map_tensors(lambda tensor: tensors.append(tensor) or tensor, copied(state))  # type: ignore[func-returns-value]
    return {place: tensor for place, tensor in enumerate(tensors) if _is_small(tensor)}


def _united(state: Any, small: Mapping[int, torch.Tensor]) -> Any:
    places = iter(range(2**62))
    return map_tensors(lambda tensor: small.get(next(places), tensor), state)


def _compared(thing: Stateful, state: Any) -> str:
    if isinstance(thing, Value):
        return repr(state["value"])
    if isinstance(thing, Adapter):
        return fingerprint(state)
    large = map_tensors(
        lambda tensor: torch.empty(0, dtype=tensor.dtype) if _is_small(tensor) else tensor, copied(state)
    )
    return fingerprint(large)
