"""The optimizer of a prepared model: built from the parameters that the model has after ``wrap``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import LBFGS, Optimizer

from rankup.errors import RankupError
from rankup.strategies.inner_optimizers import with_inner

OptimizerSource = Callable[[list[Any]], Optimizer] | Optimizer


def build_optimizer(source: OptimizerSource, names: dict[int, str], model: nn.Module) -> Optimizer:
    """``source`` called with the list of trainable parameters; or, if it is built, its groups re-pointed by name.

    ``names``: id of each parameter → its name, from before the model was moved or sharded. A strategy may replace
    the parameters: an optimizer that still holds the old ones would train nothing, silently.
    """
    if not isinstance(source, Optimizer):
        if not callable(source):
            raise _no_optimizer("the optimizer is", source)
        parameters = list(model.parameters())
        optimizer = source(_alike([parameter for parameter in parameters if parameter.requires_grad]))
        if not isinstance(optimizer, Optimizer):
            raise _no_optimizer("the optimizer function returned", optimizer)
        _check_initialized(optimizer)
        known = {id(parameter) for parameter in parameters}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in known:  # no strategy keeps it equal on all ranks
                    raise _foreign(parameter)
        return optimizer
    _check_initialized(source)
    if any(each.state for each in with_inner(source)):
        raise RankupError(
            "optimizer-has-state",
            "the optimizer has state already, which belongs to the model as it was: it has stepped, or it keeps state "
            "from its beginning, as Adagrad does",
            hint="pass a function: lambda parameters: torch.optim.Adam(parameters, lr=1e-3); for other data or another "
            "batch with the same optimizer: run.prepare(model, None, dataset, global_batch=…)",
        )
    current = dict(model.named_parameters())
    groups = {id(group): group for each in with_inner(source) for group in each.param_groups}
    for group in groups.values():
        group["params"] = [_now(parameter, names, current) for parameter in group["params"]]
    if isinstance(source, LBFGS):
        source._params = source.param_groups[0]["params"]  # it has a list of its own
    return source


def _no_optimizer(what: str, found: object) -> RankupError:
    name = type(found).__name__
    hint = "lambda parameters: torch.optim.Adam(parameters, lr=1e-3)"
    if any(
        isinstance(held, Optimizer) for held in getattr(found, "__dict__", {}).values()
    ):  # such as NoamOpt
        hint = f"prepare the optimizer that it holds, by {hint}; make the {name} of what prepare returns"
    return RankupError("not-an-optimizer", f"{what} {name}, which is not a torch.optim.Optimizer", hint=hint)


def _check_initialized(optimizer: Optimizer) -> None:
    """An error for a class whose ``__init__`` leaves out that of ``Optimizer``, without which torch has no hooks."""
    if not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        raise RankupError(
            "optimizer-not-initialized",
            f"{type(optimizer).__name__} is an Optimizer whose __init__ does not call that of torch.optim.Optimizer",
            hint="for a class around another optimizer: super().__init__(optimizer.param_groups, {}), and then "
            "self.param_groups = optimizer.param_groups",
        )


def check_step(optimizer: Optimizer) -> None:
    """An error for an optimizer that ``run.step`` cannot serve."""
    if isinstance(optimizer, LBFGS):
        raise RankupError(
            "lbfgs-needs-closure",
            "run.step(opt) has no closure for LBFGS, which computes the loss several times per step",
            hint="opt.step(closure); the closure clears the gradients, calls backward and returns the loss",
            exit_code=1,
        )


def _alike(parameters: list[nn.Parameter]) -> list[Any]:
    """The parameters; in two groups where some are sharded and some are not (tp).

    An optimizer's kernels take a whole group at once, and none takes a mixture.
    """
    sharded = [parameter for parameter in parameters if hasattr(parameter, "to_local")]
    if len(sharded) in (0, len(parameters)):
        return parameters
    plain = [parameter for parameter in parameters if not hasattr(parameter, "to_local")]
    return [{"params": sharded}, {"params": plain}]


def _now(parameter: nn.Parameter, names: dict[int, str], current: dict[str, nn.Parameter]) -> Any:
    if id(parameter) not in names:
        raise _foreign(parameter)
    return current[names[id(parameter)]]


def _foreign(parameter: torch.Tensor) -> RankupError:
    return RankupError(
        "foreign-parameter",
        f"the optimizer holds a parameter of shape {tuple(parameter.shape)} that is not the model's",
        hint="one optimizer over several models: run.prepare([encoder, decoder], optimizer, …), with every model that "
        "it trains; a parameter alone (weights of losses): model.register_parameter(name, …) before run.prepare",
    )
