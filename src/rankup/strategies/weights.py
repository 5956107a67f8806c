"""Gradients before they are reduced.

They are weighted before they are added to ``.grad``, from which a strategy reduces them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from rankup.errors import RankupError


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
