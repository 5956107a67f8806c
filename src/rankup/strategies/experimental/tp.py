"""``tp``: tensor parallelism. Every rank computes the same batch with its slices of the layers that the plan names.

The plan is the workload's (``tensor_parallel_plan(model)``): module name → ``ColwiseParallel()``, ``RowwiseParallel()``
and the like, of ``torch.distributed.tensor.parallel``. What it does not name is on every rank as it is.

All ranks draw the same random numbers, since they hold the same activations; a dropout *between* a column-wise and a
row-wise layer, where each rank holds a slice, repeats its mask from slice to slice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module
from torch.optim import Optimizer

from rankup.errors import RankupError
from rankup.strategies.base import NO_LBFGS, NO_SYNC_BATCHNORM, ONE_MODEL, Refusals, Strategy
from rankup.strategies.batch_plan import BatchPlan
from rankup.strategies.replicas import start_equal
from rankup.strategies.sharded_numbers import read_whole_numbers

Plan = Mapping[str, Any]


class TP(Strategy):
    name = "tp"
    shared_rng = True
    lockstep = True
    refuses: ClassVar[Refusals] = {
        "sync_batchnorm": NO_SYNC_BATCHNORM,
        "lbfgs": NO_LBFGS,
        "several_models": ONE_MODEL,
    }

    def __init__(self, *, plan: Callable[[nn.Module], Plan]) -> None:
        self._plan = plan

    def batch_plan(self, rank: int, world_size: int) -> BatchPlan:
        return BatchPlan(shared=True, reports=rank == 0)

    def wrap(self, model: nn.Module, device: torch.device, *, find_unused_parameters: bool) -> nn.Module:
        start_equal(model)
        plan = dict(self._plan(model))
        missing = sorted(plan.keys() - dict(model.named_modules()).keys())
        if missing or not plan:
            raise RankupError(
                "bad-tensor-parallel-plan",
                f"the plan names {', '.join(missing)}, which the model has not"
                if missing
                else "the plan is empty",
                hint="tensor_parallel_plan(model) gives module names as in model.named_modules()",
            )
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for name, style in plan.items():
            # One by one: given all names at once, torch 2.6 stumbles over those with a part twice ("blocks.0.0").
            parallelize_module(model.get_submodule(name), mesh, style)
        return model

    def setup_optimizer(
        self, model: nn.Module, optimizer: Optimizer, clip: float | None
    ) -> tuple[nn.Module, Any]:
        read_whole_numbers(optimizer)
        return model, optimizer

    def agree(self, overflowed: torch.Tensor) -> None:
        dist.all_reduce(overflowed, op=dist.ReduceOp.MAX)
