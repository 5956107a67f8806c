"""What is done to a model before it is wrapped: memory format, SyncBatchNorm, compilation."""

from __future__ import annotations

from dataclasses import dataclass
from types import MethodType

import torch
from torch import nn

from rankup.errors import RankupError
from rankup.strategies import Strategy


@dataclass(frozen=True)
class Adaptations:
    """``channels_last``: memory format of convolution weights, and so of activations. ``sync_batchnorm``: statistics
    over all ranks' shares (GPUs only). ``compile``: by torch.compile, at the first forward."""

    channels_last: bool = False
    sync_batchnorm: bool = False
    compile: bool = False

    def check(self, strategy: Strategy, accumulate: int) -> None:
        """An error for what cannot be used with SyncBatchNorm, which would wait for ever."""
        if not self.sync_batchnorm:
            return
        strategy.check("sync_batchnorm")
        if accumulate > 1:
            raise RankupError(
                "no-sync-batchnorm",
                f"SyncBatchNorm cannot be used with accumulate={accumulate}",
                hint="leave it out, or use ddp or fsdp with whole batches",
            )

    def apply(self, model: nn.Module, device: torch.device, world_size: int) -> nn.Module:
        """The adapted model; its parameters stay the same objects, with another memory format."""
        if self.channels_last:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.sync_batchnorm and world_size > 1:
            if device.type == "cpu":
                raise RankupError(
                    "sync-batchnorm-on-cpu",
                    "torch has SyncBatchNorm for GPUs only, and this run is on the CPU",
                    hint="leave it out: each rank normalises by its own samples, and the running statistics are "
                    "averaged over ranks at each save and evaluation",
                )
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
        if self.compile:
            # The forward alone: autocast and gathering are hooks around it, which a compiler must not trace. A
            # bound method, since a deep copy of the model (a moving average) then gets its own.
            compiled = torch.compile(type(model).forward)
            model.forward = MethodType(compiled, model)
        return model
