"""Optimizers that hold others: SAM around SGD, Lookahead around Adam, a list with one for each layer. A state contains
what all of them hold.

The state of an inner optimizer is saved with that of the outer one, under the name of the attribute that holds it, and
its place there: ``base_optimizer``, ``optimizers.0``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from rankup.errors import RankupError

Fields = dict[str, Any]

#: Options that choose kernels, and not what they compute.
IMPLEMENTATION = ("fused", "foreach", "capturable", "differentiable")

_TORCH = frozenset({"state", "param_groups", "defaults"})  # of every optimizer: as large as the model


def inner_optimizers(optimizer: Optimizer) -> dict[str, Optimizer]:
    """By attribute, and by its place in an attribute that is a list, a tuple or a dict."""
    found: dict[str, Any] = {}
    for name, thing in vars(optimizer).items():
        if name in _TORCH:
            continue
        if isinstance(thing, Mapping):
            found |= {f"{name}.{key}": each for key, each in thing.items()}
        elif isinstance(thing, (list, tuple)):
            found |= {f"{name}.{index}": each for index, each in enumerate(thing)}
        else:
            found[name] = thing
    inner: dict[str, Optimizer] = {}
    for name, thing in found.items():
        known = [optimizer, *inner.values()]  # one optimizer may be held twice
        if isinstance(thing, Optimizer) and not any(thing is each for each in known):
            inner[name] = thing
    return inner


def with_inner(optimizer: object) -> list[Any]:
    """``optimizer``, those that it holds, and those that these hold."""
    found = [optimizer]
    if isinstance(optimizer, Optimizer):
        for inner in inner_optimizers(optimizer).values():
            found += with_inner(inner)
    return found


def fields(optimizer: Optimizer, names: Mapping[int, str]) -> dict[str, Fields]:
    """The state of each parameter, by its name; ``names``: by the id of a parameter."""
    found = {}
    for parameter, state in optimizer.state.items():
        if id(parameter) not in names:
            if isinstance(parameter, nn.Parameter):
                raise _replaced(optimizer, parameter)
            raise RankupError(
                "optimizer-state",
                f"{type(optimizer).__name__} keeps a state of {str(parameter)[:30]!r}, which is not a parameter of the "
                "model: a snapshot holds an optimizer's state by parameters",
                hint="keep it in optimizer.state[parameter] or in a parameter group",
                exit_code=1,
            )
        found[names[id(parameter)]] = dict(state)
    for attribute, inner in inner_optimizers(optimizer).items():
        if inner.state is not optimizer.state:
            for name, held in fields(inner, names).items():
                found.setdefault(name, {})[attribute] = held
    return found


def options(optimizer: Optimizer, names: Mapping[int, str]) -> dict[str, Fields]:
    """The options of each parameter's group, by its name. Most wrappers share the groups of what they hold."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in names:
                raise _replaced(optimizer, parameter)
    found = {
        names[id(parameter)]: {option: value for option, value in group.items() if option != "params"}
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for attribute, inner in inner_optimizers(optimizer).items():
        if not _shared_groups(optimizer, inner):
            for name, held in options(inner, names).items():
                found.setdefault(name, {})[attribute] = held
    return found


def _replaced(optimizer: Optimizer, parameter: torch.Tensor) -> RankupError:
    return RankupError(
        "replaced-parameter",
        f"{type(optimizer).__name__} holds a parameter of shape {tuple(parameter.shape)} that the model does not have: "
        "after prepare the script has put another one in its place, or a layer",
        hint="tie weights and replace layers before run.prepare; a new layer's parameters join by opt.add_param_group",
        exit_code=1,
    )


def load_options(group: Fields, saved: Fields, optimizer: Optimizer) -> None:
    """Put back what ``options`` gave of one parameter's group."""
    inner = inner_optimizers(optimizer)
    group.update({option: value for option, value in saved.items() if option not in inner})


def of_inner(saved: Mapping[str, Fields], attribute: str) -> dict[str, Fields]:
    """The part of ``fields`` or ``options`` that belongs to the optimizer that ``attribute`` holds."""
    return {name: held[attribute] for name, held in saved.items() if attribute in held}


def _shared_groups(optimizer: Optimizer, inner: Optimizer) -> bool:
    ours = {id(group) for group in optimizer.param_groups}
    return all(id(group) in ours for group in inner.param_groups)
