"""Gradients before they are reduced.

They are weighted before they are added to ``.grad``, from which a strategy reduces them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.optim import Optimizer

from rankup.errors import RankupError
from rankup.messages.tree import on_some_rank


class GradientWeights:
    """Scales what a backward pass adds to a parameter's ``.grad``, whole, before it is reduced.

    A hook on the parameter would also scale what ``torch.autograd.grad`` returns: a penalty or a perturbation that is
    computed from it would depend on the number of this rank's samples. So the hook is on the accumulating node.
    """

    def __init__(self) -> None:
        self.weight = 1.0
        self._nodes: dict[int, tuple[torch.Tensor, Any]] = {}  # parameter, its node (kept alive)
        self._handles: list[Any] = []  # of all nodes, while the weight is not 1

    def add(self, parameter: torch.Tensor) -> None:
        """Weight its gradients from now on; calling it again has no effect."""
        if parameter.requires_grad and id(parameter) not in self._nodes:
            node = get_gradient_edge(parameter).node
            self._nodes[id(parameter)] = (parameter, node)
            if self.weight != 1.0:
                self._handles.append(node.register_prehook(self._scaled))

    def clear(self) -> None:
        """Forget all parameters."""
        self._unhook()
        self._nodes.clear()

    def set(self, weight: float) -> None:
        """From the next backward on. With 1 there are no hooks, which would cost a call for each parameter."""
        if weight == self.weight:
            return
        self.weight = weight
        if weight == 1.0:
            self._unhook()
        elif not self._handles:
            self._handles = [node.register_prehook(self._scaled) for _, node in self._nodes.values()]

    def _unhook(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _scaled(self, gradients: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor | None, ...] | None:
        if self.weight == 1.0:
            return None
        return tuple(None if gradient is None else self._times(gradient) for gradient in gradients)

    def _times(self, gradient: torch.Tensor) -> torch.Tensor:
        if self.weight == 0.0:
            return torch.zeros_like(gradient)  # not a product: 0 × inf is NaN
        return gradient * self.weight


class SparseGradients:
    """Gives each sparse gradient memory of its own, before DDP divides it by the number of ranks in place.

    The values of an embedding's sparse gradient are the gradient of its output, which the backward pass of other layers
    may still need: with `(users(u) * items(i)).sum(1) + bias(u).squeeze(1)` the embeddings before the sum would get
    that gradient divided already, and be trained with a part of theirs.
    """

    def __init__(self) -> None:
        self._nodes: dict[int, tuple[torch.Tensor, Any]] = {}  # parameter, its node (kept alive)

    def add(self, model: nn.Module) -> None:
        """For what ``model`` trains by sparse gradients; calling it again adds what is new."""
        for module in model.modules():
            if not isinstance(module, nn.Embedding | nn.EmbeddingBag) or not module.sparse:
                continue
            parameter = module.weight
            if parameter.requires_grad and id(parameter) not in self._nodes:
                node = get_gradient_edge(parameter).node
                node.register_prehook(_copied)
                self._nodes[id(parameter)] = (parameter, node)


def _copied(gradients: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor | None, ...]:
    return tuple(
        gradient.clone() if gradient is not None and gradient.is_sparse else gradient
        for gradient in gradients
    )


def nothing_counted() -> RankupError:
    return RankupError(
        "nothing-counted",
        "count= is 0 on all ranks in this step: the mean over nothing is NaN",
        hint="leave out samples whose targets are all ignored; or divide the sum yourself, with at least 1: "
        'run.backward(losses.sum() / max(1, run.sum(n)), reduction="sum")',
        exit_code=1,
    )


class DummyGradients:
    """Parameters that only a dummy batch has used: they end a step without a gradient, as in one process.

    A rank without samples computes on a dummy batch, whose gradients count nothing. DDP still counts its parameters as
    used, and gives them a gradient of zeros: Adam would continue by its momentum, and AdamW would decay the weight.

    All ranks know before a backward whether some rank has a dummy batch in this step: from the size of the batch, or by
    the exchange of ``run.backward(count=)``. In all other steps nothing is noted, and nothing exchanged.

    ``counts()`` says whether this rank's gradients count in the mean over ranks."""

    def __init__(self, counts: Callable[[], bool]) -> None:
        self._counts = counts
        self._watched: dict[int, nn.Parameter] = {}
        self._used: tuple[set[int], set[int]] = (set(), set())  # ids: by a dummy batch; by samples
        self._expected = False  # whether some rank has a dummy batch in this step
        self._steps = 0  # that had one
        self._done: dict[
            int, int
        ] = {}  # optimizer → the same at its last step: a later one has what was used since
        self._handles: list[Any] = []

    def watch(self, parameters: Iterable[nn.Parameter]) -> None:
        for parameter in parameters:
            if parameter.requires_grad and id(parameter) not in self._watched:
                self._watched[id(parameter)] = parameter
                if self._handles:
                    self._hook(parameter)

    def join(self, optimizer: Optimizer) -> None:
        """Before its steps it looks at what was used."""
        if self._watched and id(optimizer) not in self._done:
            self._done[id(optimizer)] = self._steps
            optimizer.register_step_pre_hook(self._before_step)

    def expect(self, expected: bool) -> None:
        """A step begins in which some rank has a dummy batch, or none has. The same on all ranks."""
        self._expected = expected
        self._steps += expected
        self._note_or_not()

    def _note_or_not(self) -> None:
        """Hooks, which cost a call for each parameter, are there only as long as some optimizer needs their notes."""
        if not self._expected and all(steps == self._steps for steps in self._done.values()):
            while self._handles:
                self._handles.pop().remove()
        elif not self._handles:
            for parameter in self._watched.values():
                self._hook(parameter)

    def _hook(self, parameter: nn.Parameter) -> None:
        hook = self._notes(id(parameter))
        self._handles.append(parameter.register_post_accumulate_grad_hook(hook))  # type: ignore[no-untyped-call]

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        """A collective, if some rank had a dummy batch since the last step of ``optimizer``."""
        if not self._expected and self._done[id(optimizer)] == self._steps:
            return
        parameters = [
            p for group in optimizer.param_groups for p in group["params"] if id(p) in self._watched
        ]
        used = on_some_rank(id(p) in ids for ids in self._used for p in parameters)
        for ids in self._used:
            ids.difference_update(map(id, parameters))
        count = len(parameters)
        for parameter, by_dummy, by_samples in zip(parameters, used[:count], used[count:], strict=True):
            if by_dummy and not by_samples:
                parameter.grad = None
        self._done[id(optimizer)] = self._steps
        self._note_or_not()

    def _notes(self, key: int) -> Callable[[torch.Tensor], None]:
        def hook(parameter: torch.Tensor) -> None:
            self._used[self._counts()].add(key)

        return hook
