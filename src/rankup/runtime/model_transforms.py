"""What ``run.prepare`` does to models before they are wrapped: memory format, SyncBatchNorm, compilation.

``run.prepare([a, b], …)``: several models with one optimizer. Each is wrapped by itself; a state has one for all. A
list or tuple gives the names ``0.weight``, ``1.weight``, … and a dict those of its keys: ``encoder.weight``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rankup.errors import RankupError
from rankup.strategies import Strategy

Models = nn.Module | list[Any] | tuple[Any, ...] | dict[str, Any]


def parts_of(models: Models, strategy: Strategy) -> dict[str, nn.Module]:
    """Each model by its name; ``""`` for a single one. RankupError for models that cannot be prepared together."""
    several = not isinstance(models, nn.Module)
    if isinstance(models, nn.Module):
        parts: dict[str, Any] = {"": models}
    elif isinstance(models, Mapping):
        parts = dict(models)
    else:
        parts = {str(index): model for index, model in enumerate(models)}
    other = next((type(part).__name__ for part in parts.values() if not isinstance(part, nn.Module)), None)
    if other is not None or not parts:
        raise RankupError(
            "not-a-model",
            f"run.prepare got {'no model' if other is None else f'a {other}'} where it needs an nn.Module",
            hint="a model, or a list, tuple or dict of models for one optimizer",
        )
    if any(isinstance(part, DistributedDataParallel) for part in parts.values()):
        raise RankupError(
            "already-wrapped", "the model is DDP already", hint="pass the model itself: prepare wraps it"
        )
    if several:
        strategy.check("several_models", count=len(parts))
    shared = Counter(
        id(p) for part in parts.values() for p in set(part.parameters()) if p.requires_grad
    ).most_common(1)
    if shared and shared[0][1] > 1:
        strategy.check("shared_parameters")
    return parts


def container(models: Models, parts: Mapping[str, nn.Module]) -> nn.Module:
    """One module that names the parameters of all parts."""
    if isinstance(models, nn.Module):
        return parts[""]
    return nn.ModuleDict(parts) if isinstance(models, Mapping) else nn.ModuleList(parts.values())


def like(models: Models, parts: Mapping[str, Any]) -> Any:
    """``parts`` in the form of ``models``."""
    if isinstance(models, nn.Module):
        return parts[""]
    return dict(parts) if isinstance(models, Mapping) else type(models)(parts.values())


def each(change: Callable[[nn.Module], nn.Module], parts: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    return {name: change(part) for name, part in parts.items()}


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
