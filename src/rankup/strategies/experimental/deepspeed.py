"""``deepspeed``: DeepSpeed's engine with ZeRO stage 1 (optimizer state is sharded), if it is installed.

The engine does backward, clipping and the step. Its own micro-batches and precisions are off: rankup cuts the batches,
and autocast sets the precision. It steps on copies of the weights in fp32. It does not support snapshots.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import nn
from torch.optim import Optimizer

from rankup.errors import RankupError
from rankup.strategies.base import NO_LBFGS, NO_SYNC_BATCHNORM, ONE_MODEL, Refusal, Refusals, Strategy
from rankup.strategies.replicas import start_equal


class DeepSpeed(Strategy):
    name = "deepspeed"
    refuses: ClassVar[Refusals] = {
        "sync_batchnorm": NO_SYNC_BATCHNORM,
        "lbfgs": NO_LBFGS,
        "several_models": ONE_MODEL,
        "accumulate": Refusal(
            "not-with-deepspeed",
            "strategy deepspeed takes one batch per step",
            "leave accumulate= out; or strategy fsdp",
        ),
        "fp16": Refusal(
            "not-with-deepspeed",
            "strategy deepspeed steps on copies of the weights in fp32, and scales no loss",
            "precision bf16, tf32 or fp32",
        ),
    }
    snapshots = False  # its optimizer holds flat partitions of its own

    def __init__(self) -> None:
        try:
            self._deepspeed: Any = importlib.import_module("deepspeed")
        except ImportError as error:
            raise RankupError(
                "no-deepspeed",
                f"the strategy deepspeed requires the package deepspeed, which failed to import: {error}",
                hint="pip install deepspeed; or --strategy fsdp, which shards with torch alone",
            ) from error
        self._weight = 1.0
        self._norm = torch.zeros(())
        self._engine: Any = None
        self._device = torch.device("cpu")

    def wrap(self, model: nn.Module, device: torch.device, *, find_unused_parameters: bool) -> nn.Module:
        if find_unused_parameters:
            raise RankupError(
                "bad-option",
                "strategy deepspeed does not take find_unused_parameters=True",
                hint="strategy ddp or fsdp, for a model of which a rank may not use all parameters",
            )
        self._device = device
        start_equal(model)
        for parameter in model.parameters():
            parameter.data = parameter.data.contiguous()  # it flattens no other memory format
        return model

    def setup_optimizer(
        self, model: nn.Module, optimizer: Optimizer, clip: float | None
    ) -> tuple[nn.Module, Any]:
        config = {
            "train_micro_batch_size_per_gpu": 1,  # for its own reports; the engine takes any batch
            "gradient_accumulation_steps": 1,
            "gradient_clipping": clip or 0.0,
            "zero_optimization": {"stage": 1},
            "zero_allow_untested_optimizer": True,
        }
        with _local_rank(self._device):
            self._engine, *_ = self._deepspeed.initialize(
                model=model, optimizer=optimizer, config=config, dist_init_required=False
            )
        # Not its own optimizer, which is none to torch's schedules: it steps by the groups of the one that it got.
        return self._engine, optimizer

    def set_gradient_scale(self, weight: float) -> None:
        self._weight = weight

    def backward(self, loss: torch.Tensor) -> None:
        weighed = loss * self._weight if self._weight else torch.nan_to_num(loss, 0.0, 0.0, 0.0) * 0.0
        self._engine.backward(weighed)

    def clip(self, parameters: Iterable[nn.Parameter], max_norm: float) -> torch.Tensor:
        self._norm = torch.zeros(())  # known when the engine has clipped, inside its step
        return self._norm

    def step(self, optimizer: Optimizer) -> None:
        self._engine.step()
        norm = self._engine.get_global_grad_norm()
        if norm is not None:
            self._norm.fill_(norm)


@contextmanager
def _local_rank(device: torch.device) -> Iterator[None]:
    """LOCAL_RANK as the number of the GPU, which the engine takes it for: a rank that sees its own GPU alone has 0."""
    if device.type != "cuda":
        yield
        return
    before = os.environ.get("LOCAL_RANK")  # srun and mpirun number ranks by variables of their own
    os.environ["LOCAL_RANK"] = str(device.index)
    try:
        yield
    finally:
        if before is None:
            del os.environ["LOCAL_RANK"]
        else:
            os.environ["LOCAL_RANK"] = before
