"""``ddp``: a replica on every rank, gradients reduced while the backward pass runs (torch's own DDP).

Two things differ from a bare ``DistributedDataParallel(model)``, both for exactness:

- The reduction is a *weighted* sum. DDP divides by the world size, which is the mean over the global batch only
  where all ranks hold equally many samples. Here each rank's bucket is scaled by its share ``n / N`` first.
- Buffers are not broadcast from rank 0 in every forward. That would be a collective inside evaluation, where ranks
  hold different numbers of batches, and it throws away what the other ranks' batch statistics saw. The runtime
  averages them when an epoch ends and before an evaluation instead (``runtime/buffers.py``).
"""

# No `from __future__ import annotations` here: register_comm_hook compares the hook's annotations as objects.
import inspect
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# Named forward_sync_buffers since torch 2.13, broadcast_buffers before.
_SIGNATURE = inspect.signature(DistributedDataParallel.__init__).parameters
_SYNC_BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _SIGNATURE else "broadcast_buffers"


class DDP:
    name = "ddp"

    def __init__(self) -> None:
        self._weight = 1.0
        self._models: list[DistributedDataParallel] = []

    def wrap(self, model: nn.Module, device: torch.device, *, find_unused_parameters: bool) -> nn.Module:
        if not any(p.requires_grad for p in model.parameters()):
            return model  # a frozen teacher: DDP refuses it, and there is nothing to reduce
        no_buffers_in_forward: dict[str, Any] = {_SYNC_BUFFERS: False}
        wrapped = DistributedDataParallel(
            model,
            device_ids=[device] if device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            find_unused_parameters=find_unused_parameters,
            **no_buffers_in_forward,
        )
        wrapped.register_comm_hook(self, _weighted_sum)
        self._models.append(wrapped)
        return wrapped

    def unwrap(self, model: nn.Module) -> nn.Module:
        if isinstance(model, DistributedDataParallel):
            inner = model.module
            assert isinstance(inner, nn.Module)
            return inner
        return model

    @property
    def weight(self) -> float:
        return self._weight

    def weigh(self, weight: float) -> None:
        self._weight = weight

    @contextmanager
    def deferred(self) -> Iterator[None]:
        with ExitStack() as stack:
            for model in self._models:
                stack.enter_context(model.no_sync())
            yield

    def clip(self, parameters: Iterable[nn.Parameter], max_norm: float) -> torch.Tensor:
        return nn.utils.clip_grad_norm_(parameters, max_norm)  # replicas hold the same gradients


def _weighted_sum(state: DDP, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
    """DDP's communication hook: scale by this rank's share, then sum. It replaces DDP's division by the world size."""
    gradients = bucket.buffer()
    if state.weight == 0.0:
        gradients.zero_()  # not a product: 0 × inf is NaN
    else:
        gradients.mul_(state.weight)
    work = dist.all_reduce(gradients, async_op=True)
    assert work is not None
    summed: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda done: done.value()[0])
    return summed
