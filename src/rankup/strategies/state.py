"""The state of a model and its optimizer by parameter names, whatever the strategy: what snapshots hold.

Tensors are the live ones: plain under none, dp and ddp (equal on all ranks), DTensors under fsdp and tp, a stage's own
under pp. ``torch.distributed.checkpoint`` saves and loads all of these under one name each, so a state written by one
strategy is read by another. Optimizer state is taken as it is: torch's ``get_state_dict`` would make an optimizer that
has not stepped take an empty step first, after which Adam counts one step too many.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from rankup.errors import RankupError
from rankup.strategies.base import Strategy
from rankup.strategies.clipping import local, whole
from rankup.strategies.inner_optimizers import (
    Fields,
    fields,
    inner_optimizers,
    load_options,
    of_inner,
    options,
)
from rankup.strategies.parameter_groups import add_missing_groups, blank, places

State = dict[str, Any]
COUNTER = "step"  # of each parameter, a tensor of one number


def state(strategy: Strategy, model: nn.Module, optimizer: Optimizer | None) -> State:
    """``{"model": {name: tensor}, "optimizer": {"state": {name: {field: value}}, "groups": {name: {option: value}},
    "places": {name: number of its group}}}``.

    ``model`` is the unwrapped one (``Run.models``). The optimizer's part holds what this rank trains.
    """
    tensors = strategy.tensors(model)
    for name, value in tensors.items():
        if not isinstance(value, torch.Tensor):  # what a module's get_extra_state gives
            raise RankupError(
                "extra-state",
                f"{name} of the model is a {type(value).__name__}, which no snapshot of tensors holds",
                hint="a buffer for what is a tensor; run.register(name=thing) for anything with a state_dict",
            )
    saved: State = {"model": {name: tensor.detach() for name, tensor in tensors.items()}}
    if optimizer is not None:
        names = {id(tensor): name for name, tensor in tensors.items()}
        saved["optimizer"] = {
            "state": {name: _packed(held) for name, held in fields(optimizer, names).items()},
            "groups": options(optimizer, names),
            "places": places(optimizer, names),
        }
    return saved


def target(
    strategy: Strategy, model: nn.Module, optimizer: Optimizer | None, saved: Mapping[str, Any]
) -> State:
    """A state to load into: this rank's names, laid out as the strategy has it, with the fields that ``saved`` has.

    ``saved`` is a state of the same form whose tensors need shape and dtype only (they may be on ``meta``). A field of
    its parameter's shape is laid out as the parameter is; any other is whole on every rank.
    """
    if optimizer is not None:
        add_missing_groups(optimizer, strategy.tensors(model), saved.get("optimizer", {}))
    _make_room(strategy, model, saved.get("model", {}))
    made = state(strategy, model, optimizer)
    if optimizer is None:
        return made
    there, groups = saved.get("optimizer", {}), made["optimizer"]["groups"]
    made["optimizer"]["state"] = {
        name: _like("", made["model"][name], held)
        # Nothing is saved of a level that is empty: before the first step, or of SGD without momentum.
        for name, held in there.get("state", {}).items()
        if name in groups
    }
    for name, theirs in there.get("groups", {}).items():
        if name in groups:  # of another class or version, an optimizer has other options
            groups[name] = {
                option: groups[name].get(option, blank(value)) for option, value in theirs.items()
            }
    return made


LENGTH = "length"  # of a list, beside its items "0", "1", …


def _packed(value: Any) -> Any:
    """Lists as dicts: LBFGS keeps lists of tensors, and nothing would be saved of one that is empty."""
    if isinstance(value, Mapping):
        return {str(key): _packed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return {LENGTH: len(value)} | {str(index): _packed(item) for index, item in enumerate(value)}
    return value


def _like(field: str, parameter: torch.Tensor, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _like(key, parameter, item) for key, item in value.items()}
    if not isinstance(value, torch.Tensor):
        return value
    if value.shape == parameter.shape and field != COUNTER:
        return torch.zeros_like(parameter, dtype=value.dtype)
    return torch.zeros(value.shape, dtype=value.dtype)


def load_state(
    strategy: Strategy, model: nn.Module, optimizer: Optimizer | None, saved: Mapping[str, Any]
) -> None:
    """Put back a state, of this strategy or of another. Collective where tensors are laid out anew.

    RankupError, before anything is changed, if names or shapes belong to another model. Names that this rank does not
    hold (another stage's) are skipped if another rank has them.
    """
    _make_room(strategy, model, saved["model"])
    tensors = strategy.tensors(model)
    _check(strategy, tensors, saved["model"])
    with torch.no_grad():
        for name, tensor in tensors.items():
            local(tensor).copy_(local(_laid_out(saved["model"][name], tensor)))
        if optimizer is None:
            return
        names = {id(tensor): name for name, tensor in tensors.items()}
        add_missing_groups(optimizer, tensors, saved["optimizer"])
        _load_optimizer(optimizer, names, saved["optimizer"]["state"], saved["optimizer"]["groups"])


def _make_room(strategy: Strategy, model: nn.Module, saved: Mapping[str, torch.Tensor]) -> None:
    """Let modules make room for buffers that have another shape in ``saved``, such as those of an observer, which get
    theirs in its first forward. Whether a module can, its own loading decides: that of torch changes nothing."""
    tensors = strategy.tensors(model) if strategy.every_name else {}
    modules = dict(model.named_modules()) if tensors else {}

    def fits(name: str) -> bool:
        return name in tensors and tensors[name].shape == saved[name].shape

    other = [name for name in saved if not (fits(name) or isinstance(tensors.get(name), nn.Parameter))]
    for path in {name.rpartition(".")[0] for name in other} & modules.keys():
        room = {
            name: tensors[name].detach()
            if fits(name)
            else torch.zeros(value.shape, dtype=value.dtype, device=next(iter(tensors.values())).device)
            for name, value in saved.items()
            if name.rpartition(".")[0] == path
        }
        version = {"version": modules[path]._version}
        modules[path]._load_from_state_dict(room, f"{path}." if path else "", version, False, [], [], [])


def _load_optimizer(
    optimizer: Optimizer, names: Mapping[int, str], saved: Mapping[str, Fields], groups: Mapping[str, Fields]
) -> None:
    """``optimizer`` and those that it holds, from what ``fields`` and ``options`` gave."""
    inner = inner_optimizers(optimizer)
    optimizer.state.clear()
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            name = names[id(parameter)]
            load_options(group, groups.get(name, {}), optimizer)
            own = {field: value for field, value in saved.get(name, {}).items() if field not in inner}
            if own or (name in saved and not inner):
                optimizer.state[parameter] = {
                    field: _field(field, value, parameter, group) for field, value in own.items()
                }
    for attribute, held in inner.items():
        if held.state is not optimizer.state:
            _load_optimizer(held, names, of_inner(saved, attribute), of_inner(groups, attribute))


def _check(strategy: Strategy, tensors: Mapping[str, torch.Tensor], saved: Mapping[str, Any]) -> None:
    missing = sorted(tensors.keys() - saved.keys())
    foreign = [] if not strategy.every_name else sorted(saved.keys() - tensors.keys())
    other = sorted(name for name in tensors.keys() & saved.keys() if tensors[name].shape != saved[name].shape)
    for names, said in (
        (missing, "lacks"),
        (foreign, "has, and this model has not,"),
        (other, "has in another shape"),
    ):
        if names:
            raise RankupError(
                "other-model",
                f"the state {said} {', '.join(names[:3])}"
                + (f" and {len(names) - 3} more" if names[3:] else ""),
                hint="it was taken of another model: build the one that it belongs to",
            )


def _field(field: str, value: Any, parameter: torch.Tensor, group: Mapping[str, Any]) -> Any:
    """On the device where torch's optimizers need it: that of the parameter. The counter of steps is there only for
    kernels that keep it on the device (``Optimizer.load_state_dict`` has the same rule)."""
    if isinstance(value, Mapping):
        if LENGTH in value:
            return [_field(field, value[str(index)], parameter, group) for index in range(value[LENGTH])]
        return {key: _field(key, item, parameter, group) for key, item in value.items()}
    if not isinstance(value, torch.Tensor):
        return value
    if field == COUNTER:
        on_device = group.get("fused") or group.get("capturable")
        return whole(value).to(parameter.device if on_device else "cpu").clone()
    if value.shape == parameter.shape:
        laid_out = _laid_out(value, parameter)
        # In the parameter's memory format: a fused optimizer reads both in memory order.
        return torch.empty_like(parameter, dtype=value.dtype).copy_(laid_out)
    return whole(value).to(parameter.device).clone()


def _laid_out(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """``value`` on the device of ``like`` and sharded as it is."""
    if not hasattr(like, "to_local"):
        return whole(value).to(like.device)
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    if isinstance(value, DTensor) and value.device_mesh == like.device_mesh:
        return value.redistribute(placements=like.placements)
    return distribute_tensor(whole(value).to(like.device), like.device_mesh, like.placements)


def whole_weights(strategy: Strategy, model: nn.Module) -> dict[str, torch.Tensor]:
    """The model's plain ``state_dict``, whole and on the CPU, on rank 0 (pieces elsewhere). Every rank calls it."""
    weights = {name: whole(tensor.detach()).cpu() for name, tensor in strategy.tensors(model).items()}
    if strategy.every_name:
        return weights
    stages: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(weights, stages)
    return {name: tensor for stage in stages or [weights] for name, tensor in stage.items()}
