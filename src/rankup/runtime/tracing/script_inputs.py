"""What a step of any script was computed from, besides the batches of a DataLoader: the optimizer's state, and what the
script's modules were given.

A script may make its batches without a DataLoader. So what each outermost call of a module with parameters is given is
noted, while gradients are on: a transform that makes a sample, and a loss, have none. And the global generators are
noted once, just before the first batch is drawn: a resume that has restored them begins there with others than the
first process did. Besides, the generators before the first of these calls, and those that the script has set until
then: if these are the same, the call's batch had been drawn before they were saved.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.modules import module as hooks
from torch.optim import Optimizer
from torch.utils.data import dataloader

from rankup.runtime.digest import digest
from rankup.runtime.seed import rng_state

_NUMBERS = (bool, int, float, str, type(None))
_WRAPPED = 9  # samplers within samplers


def parameters(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def fields(optimizer: Optimizer, parameter: torch.Tensor) -> dict[str, Any]:
    state = optimizer.state.get(parameter, {})
    return {name: value for name, value in state.items() if isinstance(value, (torch.Tensor, *_NUMBERS))}


def options(optimizer: Optimizer) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in sorted(group.items()) if name != "params"}
        for group in optimizer.param_groups
    ]


def generators() -> dict[str, str]:
    return {
        # Python's generator is a tuple of 625 numbers.
        f"generator {name}": digest(repr(state) if name == "python" else state)
        for name, state in rng_state().items()
    }


class ScriptInputs:
    """Of this process. ``ignored`` says that rankup's own loop is traced."""

    def __init__(self, ignored: Callable[[], bool]) -> None:
        self._ignored = ignored
        self._depth = 0
        self._given: list[str] = []
        self._used = 0  # so many of these are in the gradients
        self.began: dict[str, str] = {}  # the generators before the first batch
        self.iterated: dict[str, str] | None = None  # those before a loader began, since the last ``take``
        # Those before the first call of a module since the last ``take``, and those that the script has set until then.
        self._called: dict[str, str] | None = None
        self._set: dict[str, str] = {}
        self.draws = False  # whether a loader draws its order from torch's generator
        self.workers = False  # whether one seeds its workers by it
        hooks.register_module_forward_pre_hook(self._before)
        hooks.register_module_forward_hook(self._after, always_call=True)
        original = dataloader.DataLoader.__iter__

        @functools.wraps(original)
        def iterated(loader: Any) -> Iterator[Any]:
            self._drawn(loader)
            return original(loader)

        dataloader.DataLoader.__iter__ = iterated  # type: ignore[assignment,method-assign]
        for name, set_, *owners in (
            ("torch", "set_rng_state", torch, torch.random),
            ("python", "setstate", random),
            ("numpy", "set_state", getattr(sys.modules.get("numpy"), "random", None)),
        ):
            self._notes(f"generator {name}", set_, owners)

    def _notes(self, generator: str, name: str, owners: list[Any]) -> None:
        original = getattr(owners[0], name, None)
        if original is None:
            return

        @functools.wraps(original)
        def sets(*args: Any, **options: Any) -> None:
            original(*args, **options)
            if self._called is None and not self._ignored():
                self._set[generator] = generators()[generator]

        for owner in owners:
            setattr(owner, name, sets)

    def take(self) -> dict[str, Any]:
        """What a step's record has of this."""
        found = {"inputs": self._given, "iterated": self.iterated, "called": self._called, "set": self._set}
        self._given, self.iterated, self._called, self._set = [], None, None, {}
        self._used = 0
        return found

    def skips(self) -> None:
        """What was given was for no step. The generators before the loader began are those of the next one, too."""
        self._given, self._used = [], 0

    def used(self, *_: Any) -> None:
        """What was given until now is in the gradients."""
        self._used = len(self._given)

    def drops(self) -> None:
        """These gradients are gone, without a step."""
        self._given, self._used = self._given[self._used :], 0
        self._called, self._set = None, {}

    def _drawn(self, loader: Any) -> None:
        self._begin()
        if torch.is_grad_enabled() and not self._ignored():  # else an evaluation
            self.iterated = generators()
        if loader.generator is None:
            self.draws = self.draws or getattr(_innermost(loader), "generator", self) is None
            self.workers = self.workers or loader.num_workers > 0

    def _begin(self) -> None:
        if not self.began and not self._ignored():
            self.began = generators()

    # torch.compile traces hooks into its graph: there they do nothing.

    def _before(self, module: Any, values: Any) -> None:
        if torch.compiler.is_compiling():
            return
        self._depth += 1
        if self._depth == 1 and torch.is_grad_enabled() and not self._ignored():
            self._begin()
            if next(module.parameters(), None) is not None:
                if self._called is None:
                    self._called = generators()
                self._given.append(digest(values))

    def _after(self, module: Any, values: Any, given: Any) -> None:
        if not torch.compiler.is_compiling():
            self._depth -= 1


def _innermost(loader: Any) -> Any:
    """The sampler of samples, which others may wrap: to form batches, to shard them, to skip some."""
    # Never by their truth: that asks for a length, which the sampler of a stream has not.
    sampler = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    for _ in range(_WRAPPED):
        inside = [getattr(sampler, name, None) for name in ("batch_sampler", "sampler")]
        inner = next((each for each in inside if each is not None), None)
        if inner is None:
            break
        sampler = inner
    return sampler
