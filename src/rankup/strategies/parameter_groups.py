"""Parameter groups that a script adds in the middle of a training: they are restored with its state.

A script that unfreezes a layer in its third epoch calls ``opt.add_param_group`` there. Resumed in its fourth epoch it
does not call it, so the group is restored here. Resumed *in* its third epoch it repeats the call, which is then
ignored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from rankup.errors import RankupError


def places(optimizer: Optimizer, names: Mapping[int, str]) -> dict[str, int]:
    """Name of a parameter → number of its group; ``names``: by the id of a parameter."""
    return {
        names[id(parameter)]: index
        for index, group in enumerate(optimizer.param_groups)
        for parameter in group["params"]
    }


def add_missing_groups(
    optimizer: Optimizer, tensors: Mapping[str, torch.Tensor], saved: Mapping[str, Any]
) -> None:
    """Add the groups that the optimizer of ``saved`` had been given after it was built. ``tensors``: what this rank
    holds, by name.

    RankupError ``other-optimizer`` if it trains other parameters.
    """
    there: dict[str, int] | None = saved.get("places")
    if there is None:  # tensors alone
        return
    ours = places(optimizer, {id(tensor): name for name, tensor in tensors.items()})
    if extra := sorted(ours.keys() - there.keys()):
        raise _other(f"the optimizer trains {extra[0]}, and that of the state does not")
    missing: defaultdict[int, list[str]] = defaultdict(list)
    for name, index in there.items():
        if name in tensors and name not in ours:  # else another stage's
            missing[index].append(name)
    begun = {there[name] for name in ours}  # groups that the script has built by itself
    for index, names in sorted(missing.items()):
        if index in begun:
            raise _other(f"the optimizer does not train {names[0]}, and that of the state does")
        options = {option: blank(value) for option, value in saved["groups"][names[0]].items()}
        optimizer.add_param_group({**options, "params": [tensors[name] for name in names]})
    if missing:
        _pass_over_once(optimizer, {id(tensors[name]) for names in missing.values() for name in names})


def blank(value: Any) -> Any:
    """A value to load into: the tensors of an outline have no content."""
    return torch.zeros(value.shape, dtype=value.dtype) if isinstance(value, torch.Tensor) else value


def _pass_over_once(optimizer: Optimizer, restored: set[int]) -> None:
    """Ignore, once, a call that adds a group which was already restored."""
    add = optimizer.add_param_group

    def add_param_group(group: dict[str, Any]) -> None:
        given = group["params"]
        parameters = [given] if isinstance(given, torch.Tensor) else list(given)
        ids = {id(parameter) for parameter in parameters}
        if ids and ids <= restored:
            restored.difference_update(ids)
            return
        add({**group, "params": parameters})

    optimizer.add_param_group = add_param_group  # type: ignore[method-assign,assignment]


def _other(how: str) -> RankupError:
    return RankupError(
        "other-optimizer",
        f"the state belongs to another optimizer: {how}",
        hint="give it the same parameters, in the same groups, as the run did that saved the state",
    )
