"""``pp``: pipeline parallelism, the model cut into stages, one per rank (torch's ``pipelining``, schedule 1F1B).

Every rank takes the same batch: the first stage reads its inputs, the last one its targets and the loss. A batch is cut
into equal micro-batches that follow one another; each stage alternates one forward with one backward, so that it holds
few activations. So forward and backward are one call, ``Pipeline.forward_backward``.

Stages come from the workload (``pipeline_stages(model, n)``); each takes one tensor and gives one, and the last one's
output is the model's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from rankup.errors import RankupError
from rankup.strategies.base import NO_LBFGS, NO_SYNC_BATCHNORM, ONE_MODEL, Refusals, Strategy, require_torch
from rankup.strategies.batch_plan import BatchPlan
from rankup.strategies.clipping import clip_gradients

# Gradients are weighed here: torch 2.7 and later would divide them by the number of micro-batches, 2.6 does not.
_UNSCALED: dict[str, Any] = (
    {"scale_grads": False} if "scale_grads" in inspect.signature(ScheduleGPipe.__init__).parameters else {}
)

Loss = Callable[[Any, Any], torch.Tensor]


class PP(Strategy):
    name = "pp"
    lockstep = True
    pipelined = True
    every_name = False
    refuses: ClassVar[Refusals] = {
        "sync_batchnorm": NO_SYNC_BATCHNORM,
        "lbfgs": NO_LBFGS,
        "several_models": ONE_MODEL,
    }

    def __init__(
        self,
        *,
        stages: Callable[[nn.Module, int], Sequence[nn.Module]],
        loss: Loss,
        microbatches: int = 0,
    ) -> None:
        """``microbatches`` per batch at most (fewer where it does not divide into so many); 0: twice the stages."""
        self._stages = stages
        self._loss = loss
        self._microbatches = microbatches
        self._names: dict[str, str] = {}  # of this rank's stage → of the model

    def batch_plan(self, rank: int, world_size: int) -> BatchPlan:
        return BatchPlan(shared=True, reports=rank == world_size - 1)

    def part(self, model: nn.Module) -> nn.Module:
        count = dist.get_world_size()
        stages = list(self._stages(model, count))
        whole = {id(p) for p in model.parameters()}
        held = [id(p) for stage in stages for p in stage.parameters()]
        if len(stages) != count or set(held) != whole or len(held) != len(whole):
            raise RankupError(
                "bad-pipeline-stages",
                f"{len(stages)} stages with {len(held)} of the model's {len(whole)} parameters for {count} processes",
                hint="pipeline_stages(model, n) gives n modules, which hold every parameter once",
            )
        # A stage has other names for what it holds; the user's are those of the whole model.
        names = {id(buffer): name for name, buffer in model.named_buffers()}
        names |= {id(tensor): name for name, tensor in model.state_dict(keep_vars=True).items()}
        stage = stages[dist.get_rank()]
        held_here = dict(stage.named_buffers(remove_duplicate=False)) | stage.state_dict(keep_vars=True)
        self._names = {name: names[id(t)] for name, t in held_here.items() if id(t) in names}
        return stage

    def wrap(self, model: nn.Module, device: torch.device, *, find_unused_parameters: bool) -> nn.Module:
        if device.type == "cpu":
            require_torch((2, 8), "pp on CPUs", "a stage may compute before all of its messages are there")
        return Pipeline(model, device, self._loss, self._microbatches or 2 * dist.get_world_size())

    def forward_backward(
        self, model: nn.Module, x: Any, target: Any, scale: float
    ) -> tuple[torch.Tensor, torch.Tensor] | tuple[None, None]:
        assert isinstance(model, Pipeline)
        return model.forward_backward(x, target, scale)

    def agree(self, overflowed: torch.Tensor) -> None:
        dist.all_reduce(overflowed, op=dist.ReduceOp.MAX)

    def clip(self, parameters: Iterable[nn.Parameter], max_norm: float) -> torch.Tensor:
        return clip_gradients(parameters, max_norm, over_ranks=True)

    def tensors(self, model: nn.Module) -> dict[str, torch.Tensor]:
        return {self._names[name]: t for name, t in model.state_dict(keep_vars=True).items()}

    def buffers(self, model: nn.Module) -> dict[str, torch.Tensor]:
        # Not one that the stage makes in its first forward: the whole model has no name for it.
        found = model.named_buffers(remove_duplicate=False)
        return {self._names[name]: buffer for name, buffer in found if name in self._names}


class _Contiguous(torch.autograd.Function):
    """The identity, forwards and backwards, in plain memory order: a backend sends nothing else."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0].contiguous()


class _Sent(nn.Module):
    """A stage whose activations and gradients can be sent, whatever memory format it computes in."""

    def __init__(self, stage: nn.Module, *, last: bool) -> None:
        super().__init__()
        self.stage = stage
        self._last = last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given: torch.Tensor = self.stage(_Contiguous.apply(x))  # type: ignore[no-untyped-call]
        if self._last:  # nobody is sent this; and torch 2.6 detaches it in place, which a view refuses
            return given
        sent: torch.Tensor = _Contiguous.apply(given)  # type: ignore[no-untyped-call]
        return sent


class Pipeline(nn.Module):
    """This rank's stage and its schedules, one for each size of batch."""

    def __init__(self, stage: nn.Module, device: torch.device, loss: Loss, microbatches: int) -> None:
        super().__init__()
        self.stage = stage
        self._device = device
        self._loss = loss
        self._microbatches = microbatches
        self._schedules: dict[tuple[int, bool], ScheduleGPipe | Schedule1F1B] = {}
        self._scale = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor | None:
        """The model's output on the last rank, None on the others. Without gradients: for evaluation."""
        with torch.no_grad():
            return self._run(x, training=False)

    def forward_backward(
        self, x: torch.Tensor, target: torch.Tensor, scale: float = 1.0
    ) -> tuple[torch.Tensor, torch.Tensor] | tuple[None, None]:
        """Gradients of ``scale`` times the mean loss, added to what the stage has; (loss, output) on the last rank."""
        losses: list[torch.Tensor] = []
        self._scale = scale / self._count(len(x))
        output = self._run(x, training=True, target=target, losses=losses)
        if output is None:
            return None, None
        return torch.stack([loss.detach() for loss in losses]).sum() / scale, output

    def _run(self, x: torch.Tensor, *, training: bool, **options: Any) -> torch.Tensor | None:
        schedule = self._schedules.get((len(x), training))
        if schedule is None:
            schedule = self._schedules[len(x), training] = self._schedule(x, training)
        first, last = dist.get_rank() == 0, dist.get_rank() == dist.get_world_size() - 1
        if not last:
            options.pop("target", None)
        output: torch.Tensor | None = schedule.step(*((x,) if first else ()), **options)
        return output if last else None

    def _count(self, samples: int) -> int:
        """The most micro-batches of equal size: receivers know one shape."""
        return max(n for n in range(1, min(self._microbatches, samples) + 1) if samples % n == 0)

    def _schedule(self, x: torch.Tensor, training: bool) -> ScheduleGPipe | Schedule1F1B:
        rank, stages, count = dist.get_rank(), dist.get_world_size(), self._count(len(x))
        taken, given = self._shapes(x[: len(x) // count], training)
        stage = PipelineStage(
            _Sent(self.stage, last=rank == stages - 1),
            rank,
            stages,
            self._device,
            input_args=taken,
            output_args=given,
        )
        # 1F1B fills the pipe first, for which it needs a micro-batch per stage; the gradients are the same.
        kind = Schedule1F1B if training and count >= stages else ScheduleGPipe
        loss = (lambda output, target: self._loss(output, target) * self._scale) if training else None
        try:
            return kind(stage, count, loss_fn=loss, **_UNSCALED)
        except ValueError as error:
            raise RankupError(
                "too-few-microbatches",
                f"a batch of {len(x)} samples is cut into {count} equal micro-batches, and torch "
                f"{torch.__version__} requires at least one per stage, and there are {stages} stages",
                hint="a newer torch; or batches, the last one too, that as many as there are stages divide",
                exit_code=1,
            ) from error

    def _shapes(self, x: torch.Tensor, training: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """What this stage takes and gives for a micro-batch like ``x``.

        Found by a forward without side effects. The schedule by itself would use uninitialised memory, and BatchNorm
        would keep the statistics of that.
        """
        rank, stages = dist.get_rank(), dist.get_world_size()
        told: list[Any] = [None]
        if rank > 0:
            dist.recv_object_list(told, src=rank - 1)
            x = torch.zeros(told[0][0], dtype=told[0][1], device=self._device)
        buffers = [(buffer, buffer.clone()) for buffer in self.stage.buffers()]
        devices = [] if self._device.type == "cpu" else [self._device]
        with torch.no_grad(), torch.random.fork_rng(devices=devices):
            given = self.stage(x)
            for buffer, value in buffers:
                buffer.copy_(value)
        if rank < stages - 1:
            dist.send_object_list([(tuple(given.shape), given.dtype)], dst=rank + 1)
        taken = torch.empty(x.shape, dtype=x.dtype, device=self._device)
        made = torch.empty(given.shape, dtype=given.dtype, device=self._device)
        return taken.requires_grad_(training and rank > 0), made.requires_grad_(training)
