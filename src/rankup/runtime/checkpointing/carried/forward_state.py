"""Tensors that a module carries from one forward pass to the next in plain attributes: the hidden state of a recurrent
network that is trained by truncated backpropagation. No ``state_dict`` has them.

The first steps tell them from what only looks like them: a cache is not replaced in each step, features that are kept
for later are not read by ``forward``, and a state that the script resets before each batch does not reach the next one.
"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Container
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from rankup.runtime.checkpointing.carried.names import carried_attributes
from rankup.runtime.checkpointing.carried.script_objects import file_of, line_of
from rankup.runtime.context import RunContext
from rankup.runtime.tracing.script_variables import is_library

_LOOKS = 6  # steps
_ENOUGH = 3  # of them, if the epoch is shorter
_DEPTH = 2  # of containers: the two states of an LSTM for each layer

Mark = list[tuple["weakref.ref[torch.Tensor]", int]]


class ForwardState:
    """Of one run, on rank 0."""

    def __init__(self, run: RunContext) -> None:
        found = [(each, _attributes(type(each))) for model in run.models for each in model.modules()]
        self._modules = {id(module): (module, names) for module, names in found if names}
        self._ends: dict[tuple[int, str], Mark] = {}
        self._reached: dict[tuple[int, str], int] = {}
        self._waits: set[int] = set()  # modules that were not called yet in this step
        self._steps = 0
        # Of all modules: a hook of one module would be in a copy or a file of it.
        self._hook = register_module_forward_pre_hook(self._called) if self._modules else None

    def step_done(self) -> None:
        if self._hook is None:
            return
        self._steps += 1
        for key, (module, names) in self._modules.items():
            for name in names:
                now = _mark(vars(module).get(name))
                if same(self._ends.get((key, name), []), now):
                    self._reached.pop((key, name), None)  # not replaced in this step
                self._ends[key, name] = now
        self._waits = set(self._modules)
        if self._steps == _LOOKS:
            self.close()

    def close(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def lost(self, registered: Container[int] = ()) -> list[str]:
        """What to say of each."""
        said: dict[str, str] = {}
        for (key, name), times in self._reached.items():
            module, _ = self._modules[key]
            value = vars(module).get(name)
            if times == self._steps - 1 >= _ENOUGH and id(value) not in registered:
                where = f"{name} of {type(module).__name__}"
                said[where] = (
                    f"{where} is carried from one forward pass to the next in a plain attribute, and is in no "
                    "snapshot: a resume in the middle of an epoch begins it again; keep it in a list, change that in "
                    f"place (self.{name}[:] = […]), and run.register({name}=model.{name}, per_rank=True) first"
                )
        return list(said.values())

    def _called(self, module: nn.Module, _: Any) -> None:
        key = id(module)
        if key in self._waits:
            self._waits.discard(key)
            for name in self._modules[key][1]:
                end = self._ends.get((key, name), [])
                if end and same(end, _mark(vars(module).get(name))):
                    self._reached[key, name] = self._reached.get((key, name), 0) + 1


def _attributes(kind: type) -> frozenset[str]:
    """What the class's ``forward`` may read before it sets it."""
    for each in kind.__mro__:
        if "forward" in vars(each):
            path = file_of(each)
            if not path or is_library(path):
                break
            source = "".join(linecache.getlines(path))
            return carried_attributes(source, each.__qualname__, line_of(each), "forward")
    return frozenset()


def same(before: Mark, now: Mark) -> bool:
    return len(before) == len(now) and all(
        one() is other() and version == other_version
        for (one, version), (other, other_version) in zip(before, now, strict=True)
    )


def _mark(value: Any, depth: int = _DEPTH) -> Mark:
    """The tensors in it, which it does not keep alive."""
    if isinstance(value, torch.Tensor):
        return [(weakref.ref(value), 0 if value.is_inference() else value._version)]
    if depth and isinstance(value, (list, tuple, dict)):
        items = value.values() if isinstance(value, dict) else value
        return [mark for each in items for mark in _mark(each, depth - 1)]
    return []
