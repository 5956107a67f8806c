"""What was trained, and how: what a comparison of two runs needs, as the run itself knows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rankup.runtime.context import RunContext
from rankup.runtime.data.batches import DataFeed


def training_facts(run: RunContext, feed: DataFeed) -> dict[str, Any]:
    """Plain values alone. ``model`` tells two models apart by their classes and sizes."""
    world, cut = run.world, feed.cut
    groups = [group for optimizer in run.optimizers for group in optimizer.param_groups]
    return {
        "world_size": world.world_size,
        "nodes": world.num_nodes,
        "strategy": run.strategy.name,
        "exact": run.strategy.exact,
        "precision": run.precision.name,
        "tf32": tf32_in_use(run.device),
        "device_type": run.device.type,
        "device": device_name(run.device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "seed": run.seed,
        "model": ", ".join(_described(model) for model in run.models),
        "optimizer": ", ".join(dict.fromkeys(type(one).__name__ for one in run.optimizers)),
        "lr": _rate(groups[0]) if groups else None,
        "weight_decay": groups[0].get("weight_decay") if groups else None,
        "length": cut.get("length"),
        "global_batch": cut.get("global_batch"),
        "accumulate": cut.get("accumulate"),
    }


def _rate(group: Mapping[str, Any]) -> float | None:
    """The learning rate that was set: at the first step a warm-up is below it, as is OneCycleLR below its max_lr."""
    rate = group.get("max_lr", group.get("initial_lr", group.get("lr")))
    return rate if isinstance(rate, float | int) else None


def device_name(device: torch.device) -> str:
    """As its driver calls it."""
    return "CPU" if device.type == "cpu" else str(torch.get_device_module(device).get_device_name(device))


def tf32_in_use(device: torch.device) -> bool:
    """Whether products of fp32 numbers may be rounded to tf32 on this device."""
    if device.type != "cuda":
        return False
    return bool(torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32)


def _described(model: torch.nn.Module) -> str:
    return f"{type(model).__name__} of {sum(p.numel() for p in model.parameters()):,} parameters"
