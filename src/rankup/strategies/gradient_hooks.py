"""Hooks that a script puts on its parameters see the gradient of this rank's share, before it is reduced.

``parameter.register_hook(lambda g: g.clamp(-1, 1))`` in a plain loop clips the gradient of the global batch. Where
ranks or virtual shards have a gradient each, it clips each of them, which silently trains another model. A hook that
multiplies every element by a constant, as a mask does, gives the same before the reduction as after it; and so does one
that only looks. Any other one is an error, as soon as it acts.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from rankup.errors import RankupError
from rankup.strategies.changes import count_registered, hooked

# Both are Tensor's: number → function.
_GRADIENT_HOOKS, _ACCUMULATED_HOOKS = "_backward_hooks", "_post_accumulate_grad_hooks"


class GradientHooks:
    """A forward pre-hook of ``model``: from now on what its parameters' hooks do is watched."""

    def __init__(self, model: nn.Module) -> None:
        count_registered()
        self._model = weakref.ref(model)
        self._seen: tuple[int, int] | None = None  # what there was at the last walk over the parameters

    def __call__(self, module: nn.Module, args: Any) -> None:
        if torch.is_grad_enabled() and self._seen != (now := hooked()):
            self._seen = now
            self.look()

    def look(self) -> None:
        """For hooks that are new."""
        model = self._model()
        if model is None:
            return
        for parameter in model.parameters():
            for kind in (_GRADIENT_HOOKS, _ACCUMULATED_HOOKS):
                hooks = getattr(parameter, kind, None)
                if hooks:
                    self._watch(model, parameter, hooks, accumulated=kind == _ACCUMULATED_HOOKS)

    def _watch(
        self, model: nn.Module, parameter: nn.Parameter, hooks: dict[int, Any], *, accumulated: bool
    ) -> None:
        for number, hook in list(hooks.items()):
            if isinstance(hook, _Watched) or _is_internal(hook):
                continue
            name = next((name for name, one in model.named_parameters() if one is parameter), "a parameter")
            # A handle removes by the number, so the number may belong to another function now.
            hooks[number] = _Accumulated(name, hook) if accumulated else _Gradient(name, hook)


def refuse_hooks(model: nn.Module, *, sharded: bool) -> None:
    """An error for hooks that would never be called: those on a whole parameter once it is sharded, and those on the
    gradient of a sharded one. (FSDP does call hooks that a sharded parameter has for the time after accumulation.)"""
    kinds = (_GRADIENT_HOOKS,) if sharded else (_GRADIENT_HOOKS, _ACCUMULATED_HOOKS)
    for name, parameter in model.named_parameters():
        hooks = [hook for kind in kinds for hook in (getattr(parameter, kind, None) or {}).values()]
        if not all(_is_internal(hook) for hook in hooks):
            raise RankupError(
                "gradient-hook",
                f"a hook on the gradient of {name} is not called under fsdp, which holds a part of it on each rank",
                hint="change gradients between backward and opt.step(), by prepare(…, clip=…) for example; or use ddp",
                exit_code=1,
            )


class _Watched:
    def __init__(self, name: str, hook: Callable[[torch.Tensor], Any]) -> None:
        self._name, self._hook = name, hook
        self._factor: torch.Tensor | None = None  # by which each element is multiplied; NaN: not known yet
        self._looks = False  # it has left a gradient as it was

    def _compare(self, before: torch.Tensor, after: torch.Tensor) -> None:
        """An error unless ``after`` is ``before``, each element times what it was multiplied by before."""
        if before.shape != after.shape or before.is_sparse or after.is_sparse:
            return
        before, after = before.detach(), after.detach()
        if self._factor is None and torch.equal(before, after):
            self._looks = True
            return
        known = before != 0
        factor = torch.where(known, after / before, torch.full_like(before, float("nan")))
        added = bool((~known & (after != 0)).any())
        earlier = torch.ones_like(before) if self._factor is None and self._looks else self._factor
        if earlier is None:
            earlier = factor
        both = known & ~torch.isnan(earlier)
        tolerance = 16 * torch.finfo(before.dtype).eps
        same = torch.isclose(factor[both], earlier[both], rtol=tolerance, atol=tolerance, equal_nan=True)
        if added or not bool(same.all()):
            raise RankupError(
                "gradient-hook",
                f"a hook on {self._name} changes the gradient of this rank's share in a way that does not give the "
                "gradient of the global batch: clipped shares are not a clipped gradient",
                hint="change the gradient between backward and opt.step(), where it is that of the global batch, or "
                "by prepare(…, clip=…); hooks may look at it, and multiply it by a constant",
                exit_code=1,
            )
        self._factor = torch.where(torch.isnan(earlier), factor, earlier)


class _Gradient(_Watched):
    """Of ``register_hook``: gets a gradient, and gives another one, or nothing."""

    def __call__(self, gradient: torch.Tensor) -> Any:
        before = gradient.clone()
        result = self._hook(gradient)
        self._compare(before, gradient if result is None else result)
        return result


class _Accumulated(_Watched):
    """Of ``register_post_accumulate_grad_hook``: gets the parameter, and may change its ``.grad`` in place."""

    def __call__(self, parameter: torch.Tensor) -> Any:
        assert parameter.grad is not None
        before = parameter.grad.clone()
        result = self._hook(parameter)
        # An optimizer in the hook clears it; whether it may step there is for the optimizer's own check.
        if parameter.grad is not None:
            self._compare(before, parameter.grad)
        return result


def _is_internal(hook: Any) -> bool:
    """Of rankup's or torch's own."""
    function = getattr(hook, "func", hook)  # a partial's
    module = getattr(function, "__module__", None) or type(function).__module__
    return module.startswith(("rankup.", "torch."))
