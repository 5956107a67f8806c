"""``ddp``: a replica on every rank, gradients averaged while the backward pass runs (torch's own DDP).

Four things differ from a bare ``DistributedDataParallel(model)``, all for exactness:

- Gradients are weighted if ranks hold different numbers of samples. DDP divides by the world size, which gives the mean
  over the global batch only if all hold equally many. In other steps (the last one of an epoch, mostly) each
  parameter's gradient is scaled before it enters DDP's buckets. With equal shares it is plain DDP.
- A resumed process reduces in the layout of the process before, and a parameter that is unfrozen later is reduced
  (``buckets.py``).
- Gradients are divided by the number of ranks in one way only (``divide_alike`` in ``buckets.py``).
- Buffers are not broadcast from rank 0 in every forward. That would be a collective inside evaluation, where ranks
  hold different numbers of batches, and it throws away what the other ranks' batch statistics saw. The runtime
  averages them when an epoch ends and before an evaluation instead (``runtime/distributed/buffers.py``).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from rankup.errors import RankupError
from rankup.strategies.base import NO_SHARED_PARAMETERS, Refusals, Strategy
from rankup.strategies.buckets import Buckets, divide_alike
from rankup.strategies.call_through import call_through
from rankup.strategies.gradient_hooks import GradientHooks
from rankup.strategies.replicas import start_equal, trainable
from rankup.strategies.unused import DummyGradients
from rankup.strategies.weights import GradientWeights, SparseGradients

# Named forward_sync_buffers since torch 2.13, broadcast_buffers before.
_SIGNATURE = inspect.signature(DistributedDataParallel.__init__).parameters
_SYNC_BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _SIGNATURE else "broadcast_buffers"


class DDP(Strategy):
    name = "ddp"
    refuses: ClassVar[Refusals] = {"shared_parameters": NO_SHARED_PARAMETERS}

    def __init__(self, *, static_graph: bool = False) -> None:
        """``static_graph``: every step uses the same parameters in the same way, which DDP then learns once."""
        self._static_graph = static_graph
        self._weighed = GradientWeights()
        self._sparse = SparseGradients()
        self._models: list[DistributedDataParallel] = []
        self._buckets: list[Buckets] = []  # of each model
        self._dummies = DummyGradients(counts=lambda: self._weighed.weight != 0.0)
        self._frozen: list[nn.Module] = []  # models that came without anything to train
        self._owners: dict[int, Buckets] = {}  # id of a parameter → who reduces its gradient

    def wrap(self, model: nn.Module, device: torch.device, *, find_unused_parameters: bool) -> nn.Module:
        if self._static_graph and find_unused_parameters:
            raise RankupError(
                "bad-option",
                "static_graph says that every step uses the same parameters, find_unused_parameters that they differ",
                hint="leave out one of them",
            )
        # DDP starts ranks from equal parameters; buffers, and models that it refuses, are ours to start equal.
        start_equal(model, parameters=not trainable(model))
        if not trainable(model):
            self._frozen.append(model)
            return model  # a teacher: there is nothing to reduce
        no_buffers_in_forward: dict[str, Any] = {_SYNC_BUFFERS: False}
        wrapped = DistributedDataParallel(
            model,
            device_ids=[device] if device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            find_unused_parameters=find_unused_parameters,
            static_graph=self._static_graph,
            **no_buffers_in_forward,
        )
        divide_alike(wrapped)
        self._sparse.add(model)
        if find_unused_parameters:
            self._dummies.watch(model.parameters())
        self._models.append(wrapped)
        self._buckets.append(Buckets(wrapped, self._renewed))
        wrapped.register_forward_pre_hook(self._buckets[-1])
        wrapped.register_forward_pre_hook(self._weigh_called)
        wrapped.register_forward_pre_hook(GradientHooks(wrapped.module))
        self._owners.clear()
        return call_through(model, wrapped)

    def setup_optimizer(
        self, model: nn.Module, optimizer: Optimizer, clip: float | None
    ) -> tuple[nn.Module, Any]:
        optimizer.register_step_pre_hook(self._dummies.before_step)
        return model, optimizer

    def set_gradient_scale(self, weight: float) -> None:
        self._weighed.weight = weight
        if weight == 1.0:
            self._weighed.clear()
        elif not self._weighed:
            self._weigh_all()

    def _weigh_all(self) -> None:
        for model in self._models:
            for parameter in model.parameters():
                self._weighed.add(parameter)

    def _weigh_called(self, ddp: nn.Module, args: Any) -> None:
        """Before a forward pass: what was frozen when the batch began may be trained now, as a discriminator that is
        frozen while its generator learns."""
        if self._weighed.weight != 1.0 and torch.is_grad_enabled():
            for parameter in ddp.parameters():
                self._weighed.add(parameter)

    def _renewed(self) -> None:
        """A model has other trained parameters than before."""
        self._owners.clear()
        if self._weighed:
            self._weigh_all()
        for model in self._models:
            self._sparse.add(model.module)
            if model.find_unused_parameters:
                self._dummies.watch(model.parameters())

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        if self._static_graph:
            raise RankupError(
                "static-graph-accumulates",
                "DDP with a static graph cannot gather gradients over micro-batches",
                hint="leave out static_graph, or accumulate",
            )
        with ExitStack() as stack:
            for model in self._models:
                stack.enter_context(model.no_sync())
            yield

    def check_reduced(self, optimizer: Optimizer, parameters: Iterable[nn.Parameter]) -> None:
        if not self._owners:
            self._owners = {key: buckets for buckets in self._buckets for key in buckets.reduced}
        looked: set[int] = set()
        for parameter in parameters:
            buckets = self._owners.get(id(parameter))
            if (buckets is not None and id(buckets) in looked) or parameter.grad is None:
                continue
            if buckets is None:
                self._refuse_unknown(parameter)
                continue
            looked.add(id(buckets))
            if not buckets.reduced_for(optimizer, parameter.grad):
                raise not_reduced(
                    buckets.name_of(parameter),
                    "the model was not called in this step: a loss came from another method, or from a part of it",
                    "call the model itself, `model(x)`, and other methods than forward from its forward",
                )
            if not buckets.finished():
                raise not_reduced(
                    buckets.name_of(parameter),
                    "some parameters got no gradient in this step, and ddp still waits for them",
                    "prepare(…, find_unused_parameters=True) if ranks use parts of the model by turns, as experts",
                )

    def _refuse_unknown(self, parameter: nn.Parameter) -> None:
        """An error for a gradient that no reducer handles, if its parameter belongs to a model of the run."""
        for model in self._frozen:
            for name, other in model.named_parameters():
                if other is parameter:
                    raise not_reduced(
                        name,
                        "no parameter of its model required a gradient when prepare got it, so prepare did not wrap it",
                        "unfreeze what is trained first before prepare; layers may be frozen and unfrozen afterwards",
                    )
        for wrapped in self._models:
            for name, other in wrapped.module.named_parameters():
                if other is parameter:
                    raise not_reduced(
                        name,
                        "it was unfrozen, or put into the model, after the forward pass",
                        "unfreeze before the forward pass",
                    )

    def layout(self) -> Any:
        return [buckets.layout for buckets in self._buckets]

    def restore_layout(self, saved: Any) -> None:
        layouts = [saved]
        dist.broadcast_object_list(layouts, src=0)  # DDP's is rank 0's, too
        for model, buckets, layout in zip(self._models, self._buckets, layouts[0] or [], strict=False):
            buckets.restore(model, layout)


def not_reduced(name: str, why: str, hint: str) -> RankupError:
    return RankupError(
        "gradients-not-reduced",
        f"the gradient of {name} is this rank's alone, and an optimizer is about to take it: {why}",
        hint=hint,
        exit_code=1,
    )
