"""Checks that all ranks gather and reduce the same FSDP units, in the same order.

A unit is a module that FSDP gathers by itself: each block, and the root with the rest. Hooks around FSDP's own report
each unit's forward and backward to ``BlockOrder``, before FSDP's collective. A reduction takes the parameters that have
a gradient, so these must be the same on all ranks, too. With ``find_unused_parameters`` a parameter without a gradient
on this rank joins the reduction with zeros, and one without a gradient on all ranks ends without one, as in one process
(an optimizer skips it: no momentum, no weight decay).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd import Variable
from torch.utils._pytree import tree_leaves

from rankup.errors import RankupError
from rankup.messages.tree import on_some_rank
from rankup.strategies.block_order import BlockOrder
from rankup.strategies.fsdp_parameters import Slot, Unit, clear, describe


class Units:
    """Of all models of one FSDP strategy. ``counts()`` says whether this rank's gradients count in a reduction."""

    def __init__(self, counts: Callable[[], bool]) -> None:
        self._counts = counts
        self._forward = BlockOrder()
        self._backward = BlockOrder()
        self._inside = False  # a root's forward
        self._task = -1  # autograd's number of the backward that runs
        self._touched: list[Unit] = []  # roots with a part in it
        self._slots: list[Slot] = []
        self._roots: list[Unit] = []
        self.no_sync = False

    def describe(self, model: nn.Module, blocks: list[nn.Module], *, join_unused: bool) -> Unit:
        """The units of ``model``, before it is sharded."""
        number = f"model {len(self._roots)}" if self._roots else "the model"
        return describe(number, model, blocks, join_unused=join_unused)

    def watch(self, root: Unit) -> None:
        """Hooks around FSDP's own, which are there now."""
        self._roots.append(root)
        for unit in root.units:
            for slot in unit.slots:
                slot.shard = getattr(slot.module, slot.attribute)
                self._slots.append(slot)
            # Before FSDP gathers; after it has; and before it sees to the backward of what came out.
            unit.module.register_forward_pre_hook(self._enters(unit), prepend=True)
            unit.module.register_forward_pre_hook(self._gathered(unit), with_kwargs=True)
            unit.module.register_forward_hook(self._leaves(unit), prepend=True)
        root.module.register_forward_hook(_let_go)
        for name, module in root.module.named_modules():
            if module is not root.module and next(module.parameters(recurse=False), None) is not None:
                module.register_forward_pre_hook(self._used(name), prepend=True)

    # ------------------------------------------------------------- forward

    def _enters(self, unit: Unit) -> Any:
        def hook(module: nn.Module, args: Any) -> None:
            if _task() != -1:  # computed again for a backward
                self._backward_event(unit, f"the forward of {unit.name}, again")
                return
            if unit.root is None:
                self._inside = True
                self._forward.begin()
            elif not self._inside:
                raise _outside(unit.name)
            self._forward.next(f"the forward of {unit.name}")

        return _eager(hook)

    def _gathered(self, unit: Unit) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            for slot in unit.slots if unit.join_unused or not unit.forwards else ():
                if slot.whole is None:
                    slot.whole = getattr(slot.module, slot.attribute)
                if unit.join_unused and slot.whole.requires_grad and not slot.noted:
                    slot.noted = True
                    slot.whole.register_post_accumulate_grad_hook(self._notes(slot))
            if _task() == -1:
                unit.begin_forward()
            if torch.is_grad_enabled():
                # The node whose backward reduces this unit's gradients, if anything that it is given needs one.
                nodes = [leaf.grad_fn for leaf in _tensors((args, kwargs)) if leaf.grad_fn is not None]
                for node in dict.fromkeys(n for n in nodes if "RegisterPostBackward" in n.name()):
                    node.register_prehook(lambda gradients: self._before_reduction(unit))

        return _eager(hook)

    def _leaves(self, unit: Unit) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if _task() == -1 and (name := unit.written()):
                raise _writes(name)
            if torch.is_grad_enabled():
                seen = [-1]  # one event for each forward, whichever of its outputs comes first

                def begins(gradient: torch.Tensor) -> None:
                    if seen[0] != _task():
                        seen[0] = _task()
                        self._backward_event(unit, f"the backward of {unit.name}")

                for tensor in _tensors(output):
                    if tensor.requires_grad:
                        tensor.register_hook(begins)  # type: ignore[no-untyped-call]
            if unit.root is None and _task() == -1:
                self._forward.next(f"the end of the forward of {unit.name}")
                self._inside = False

        return _eager(hook)

    def _used(self, name: str) -> Any:
        def hook(module: nn.Module, args: Any) -> None:
            if not torch.compiler.is_compiling() and not self._inside and _task() == -1:
                raise _outside(name)

        return hook

    # ------------------------------------------------------------- backward

    def _backward_event(self, unit: Unit, event: str) -> None:
        task = _task()
        if task != self._task:
            self._task = task
            self._touched = []
            self._backward.begin()
            joining = any(root.join_unused for root in self._roots)
            for slot in self._slots if joining else ():
                slot.had_gradient = slot.shard is not None and slot.shard.grad is not None
            # Queued before FSDP's own, which reduces what is left.
            Variable._execution_engine.queue_callback(self._ends)
        if unit.top not in self._touched:
            self._touched.append(unit.top)
        self._backward.next(event)

    def _before_reduction(self, unit: Unit) -> None:
        if self.no_sync:
            return
        unit.reduced = _task()
        missing = unit.complete()
        self._backward_event(unit, f"the reduction of {unit.name}{_without(missing)}")

    def _ends(self) -> None:
        left = [unit for root in self._touched for unit in root.units if unit.reduced != self._task]
        touched, self._task = self._touched, -1
        missing = [] if self.no_sync else [name for unit in left for name in unit.complete()]
        self._backward.next(f"the end of the backward{_without(missing)}")
        joined = [root for root in touched if root.join_unused]
        if joined and not self.no_sync:
            slots = [slot for root in joined for unit in root.units for slot in unit.slots]
            used = on_some_rank(slot.used for slot in slots)
            unused = [slot for slot, is_used in zip(slots, used, strict=True) if not is_used]
            for slot in slots:
                slot.used = False
            Variable._execution_engine.queue_callback(lambda: clear(unused))  # after FSDP's

    def _notes(self, slot: Slot) -> Callable[[torch.Tensor], None]:
        def hook(parameter: torch.Tensor) -> None:
            slot.used |= self._counts()

        return hook

    def check_reduced(self) -> None:
        """Before an optimizer's step: RankupError if a gradient never went through a reduction."""
        for slot in self._slots:
            if slot.whole is not None and slot.whole.grad is not None:
                raise RankupError(
                    "fsdp-not-reduced",
                    f"{slot.name} has a gradient that fsdp has not reduced over ranks",
                    hint="call the model itself, model(…), and let it return tensors, or tuples, lists and "
                    "dictionaries of tensors: fsdp finds no others",
                    exit_code=1,
                )


def _let_go(module: Any, args: Any, output: Any) -> None:
    """After a forward without gradients: FSDP would keep the root gathered, and not see what changes its shards."""
    if not torch.is_grad_enabled():
        module.reshard()


def _eager(hook: Callable[..., None]) -> Any:
    """A hook that no compiler traces, like FSDP's own."""
    return torch.compiler.disable(hook)  # type: ignore[no-untyped-call]


def _without(missing: list[str]) -> str:
    return f" without a gradient of {', '.join(missing)}" if missing else ""


def _tensors(tree: Any) -> list[torch.Tensor]:
    """All in ``tree``, also in dataclasses, as FSDP finds them in newer versions of torch."""
    found: list[torch.Tensor] = []
    for leaf in tree_leaves(tree):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif is_dataclass(leaf) and not isinstance(leaf, type):
            found += _tensors([getattr(leaf, each.name, None) for each in fields(leaf)])
    return found


def _task() -> int:
    """Autograd's number of the backward that runs in this thread; -1 outside of any."""
    return int(torch._C._current_graph_task_id())


def _writes(name: str) -> RankupError:
    return RankupError(
        "fsdp-forward-writes",
        f"the model's forward changes {name}, of which it has a gathered copy under fsdp: the change would be lost",
        hint="change weights after opt.step(), or before prepare (ActNorm: call the model once); "
        "nn.Embedding(max_norm=…) changes its weight, too; or strategy ddp",
        exit_code=1,
    )


def _outside(name: str) -> RankupError:
    return RankupError(
        "fsdp-outside-forward",
        f"{name} was called outside of the model's forward, where fsdp does not gather its parameters",
        hint="call model(…), and let its forward choose what to compute: model(x, only_encode=True)",
        exit_code=1,
    )
