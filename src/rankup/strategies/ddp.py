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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from rankup.errors import RankupError
from rankup.strategies.base import NO_SHARED_PARAMETERS, Refusals, Strategy
from rankup.strategies.buckets import Buckets, divide_alike
from rankup.strategies.call_through import call_through
from rankup.strategies.changes import hooked
from rankup.strategies.gradient_hooks import GradientHooks
from rankup.strategies.replicas import start_equal, trainable
from rankup.strategies.weights import DummyGradients, GradientWeights, SparseGradients

# Named forward_sync_buffers since torch 2.13, broadcast_buffers before.
_SIGNATURE = inspect.signature(DistributedDataParallel.__init__).parameters
_SYNC_BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _SIGNATURE else "broadcast_buffers"

_parameters = itemgetter("params")


class _Trained(NamedTuple):
    """What an optimizer trains, as long as its groups have these ``sizes``."""

    sizes: list[int]
    reduced: list[tuple[Buckets, list[nn.Parameter]]]
    others: list[nn.Parameter]  # that no reducer handles


class _Reduced(DistributedDataParallel):
    """Before each forward pass it looks at what may have changed. Not in hooks: torch calls a module that has some in a
    slower way."""

    buckets: Buckets

    def watch(self, renewed: Callable[[], None]) -> None:
        self.buckets = Buckets(self, renewed)
        self._gradient_hooks = GradientHooks(self.module)
        self._seen: tuple[int, int] | None = None  # what there was at the last walk over the model

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if changed := (now := hooked()) != self._seen:
            self._seen = now
            self._gradient_hooks.look()
        self.buckets.before_forward(self, changed=changed)
        return super().forward(*inputs, **kwargs)  # type: ignore[no-untyped-call]


class DDP(Strategy):
    name = "ddp"
    refuses: ClassVar[Refusals] = {"shared_parameters": NO_SHARED_PARAMETERS}

    def __init__(self, *, static_graph: bool = False) -> None:
        """``static_graph``: every step uses the same parameters in the same way, which DDP then learns once."""
        self._static_graph = static_graph
        self._weighed = GradientWeights()
        self._sparse = SparseGradients()
        self._models: list[_Reduced] = []
        self._buckets: list[Buckets] = []  # of each model
        self._dummies = DummyGradients(counts=lambda: self._weighed.weight != 0.0)
        self._frozen: list[nn.Module] = []  # models that came without anything to train
        self._trained: WeakKeyDictionary[Optimizer, _Trained] = WeakKeyDictionary()

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
        wrapped = _Reduced(
            model,
            device_ids=None if device.type == "cpu" else [device],
            gradient_as_bucket_view=True,
            find_unused_parameters=find_unused_parameters,
            static_graph=self._static_graph,
            **no_buffers_in_forward,
        )
        divide_alike(wrapped)
        wrapped.watch(self._renewed)
        self._models.append(wrapped)
        self._buckets.append(wrapped.buckets)
        self._renewed()
        return call_through(model, wrapped)

    def setup_optimizer(
        self, model: nn.Module, optimizer: Optimizer, clip: float | None
    ) -> tuple[nn.Module, Any]:
        self._dummies.join(optimizer)
        return model, optimizer

    def set_gradient_scale(self, weight: float) -> None:
        self._weighed.set(weight)

    def expect_dummies(self, expected: bool) -> None:
        self._dummies.expect(expected)

    def _renewed(self) -> None:
        """A model has other trained parameters than before."""
        self._trained.clear()
        for model in self._models:
            for parameter in model.parameters():
                self._weighed.add(parameter)
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

    def check_reduced(self, optimizer: Optimizer) -> None:
        sizes = [*map(len, map(_parameters, optimizer.param_groups))]
        trained = self._trained.get(optimizer)
        if trained is None or trained.sizes != sizes:
            trained = self._trained[optimizer] = self._trained_by(optimizer, sizes)
        for parameter in trained.others:
            if parameter.grad is not None:
                self._refuse_unknown(parameter)
        for buckets, parameters in trained.reduced:
            for witness in parameters:  # one speaks for all: mostly the first
                if (gradient := witness.grad) is not None:
                    break
            else:
                continue
            if not buckets.reduced_for(optimizer, gradient):
                raise not_reduced(
                    buckets.name_of(witness),
                    "the model was not called in this step: a loss came from another method, or from a part of it",
                    "call the model itself, `model(x)`, and other methods than forward from its forward",
                )
            if not buckets.finished():
                raise not_reduced(
                    buckets.name_of(witness),
                    "some parameters got no gradient in this step, and ddp still waits for them",
                    "prepare(…, find_unused_parameters=True) if ranks use parts of the model by turns, as experts",
                )

    def _trained_by(self, optimizer: Optimizer, sizes: list[int]) -> _Trained:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        # The last, where a model was prepared twice: it is the one that is called.
        owners = {key: buckets for buckets in self._buckets for key in buckets.reduced}
        reduced = [
            (buckets, [each for each in parameters if owners.get(id(each)) is buckets])
            for buckets in self._buckets
        ]
        return _Trained(sizes, reduced, [each for each in parameters if id(each) not in owners])

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
