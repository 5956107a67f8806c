"""``fsdp``: each rank holds a shard of every parameter, gradient and optimizer state (torch's FSDP2, ``fully_shard``).

The blocks of the model (the entries of its outermost ``Sequential`` and ``ModuleList`` containers) are gathered one at
a time when they compute, and let go again. ``shard_size`` makes it hybrid: sharded over so many neighbouring ranks (a
node's, mostly), replicated over the groups of them.

What differs from a bare ``fully_shard(model)``, for exactness: ranks start from rank 0's parameters; gradients are
weighted before the reduction if shares differ, as under ddp. Parameters are gathered in fp32, and autocast works as
under every strategy: FSDP's own mixed-precision policy would compute norms and biases in bf16, too, which is another
model than ddp's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.optim import Optimizer

from rankup.errors import RankupError
from rankup.strategies.base import NO_LBFGS, NO_SHARED_PARAMETERS, Refusals, Strategy, require_torch
from rankup.strategies.changes import power_of_two, requires_grad
from rankup.strategies.fsdp_units import Units
from rankup.strategies.gradient_hooks import refuse_hooks
from rankup.strategies.replicas import start_equal, trainable
from rankup.strategies.sharded_numbers import read_whole_numbers
from rankup.strategies.weights import GradientWeights


class FSDP(Strategy):
    name = "fsdp"
    refuses: ClassVar[Refusals] = {"shared_parameters": NO_SHARED_PARAMETERS, "lbfgs": NO_LBFGS}
    lockstep = True

    def __init__(self, *, shard_size: int = 0) -> None:
        """``shard_size``: ranks that share one copy of the model; 0 for all."""
        self._shard_size = shard_size
        self._weighed = GradientWeights()  # of gathered parameters
        self._models: list[Any] = []
        self._units: Units | None = None
        self._steps = 0  # of its optimizers

    def wrap(self, model: nn.Module, device: torch.device, *, find_unused_parameters: bool) -> nn.Module:
        require_torch((2, 6), "fsdp", "there is no fully_shard")
        if any(model is one for one in self._models):
            return model  # prepared once more, for a second optimizer or for other data
        from torch.distributed.fsdp import fully_shard

        on_cpu = device.type == "cpu"
        if on_cpu:
            require_torch((2, 8), "fsdp on CPUs", "gradients are summed there, and not averaged,")
        start_equal(model)
        if not trainable(model):
            return model  # a teacher: whole on every rank
        refuse_hooks(model, sharded=False)
        _refuse_sparse(model)
        for parameter in model.parameters():
            parameter.data = parameter.data.contiguous()  # it shards no other memory format
        mesh = self._mesh(device)
        self._units = self._units or Units(counts=lambda: self._weighed.weight != 0.0)
        # Only after the forward is it known which parameters are used: blocks that may be skipped belong to the root.
        chosen = certain_blocks(model) if find_unused_parameters else blocks(model)
        described = self._units.describe(model, chosen, join_unused=find_unused_parameters)
        for module in (*chosen, model):
            sharded: Any = fully_shard(module, mesh=mesh)
            if on_cpu:  # gloo has had an average to reduce with only of late
                sharded.set_force_sum_reduction_for_comms(True)
            # After FSDP's own hook, which gathers: what the module holds then are whole parameters.
            module.register_forward_pre_hook(self._hook_gathered())
        self._units.watch(described)
        self._models.append(model)
        return model

    def setup_optimizer(
        self, model: nn.Module, optimizer: Optimizer, clip: float | None
    ) -> tuple[nn.Module, Any]:
        if self._units is not None:
            optimizer.register_step_pre_hook(self._before_step)
        read_whole_numbers(optimizer)
        return model, optimizer

    def _before_step(self, *_: Any) -> None:
        assert self._units is not None
        self._steps += 1
        self._units.check_reduced()
        # Else the next forward would compute with the weights from before this step.
        for model in self._models:
            model.reshard()
            if power_of_two(self._steps):
                refuse_hooks(model, sharded=True)  # that were put on them since

    def _mesh(self, device: torch.device) -> DeviceMesh:
        ranks, size = dist.get_world_size(), self._shard_size
        if size in (0, ranks):
            return init_device_mesh(device.type, (ranks,))
        if size < 1 or ranks % size:
            raise RankupError(
                "bad-shard-size",
                f"{ranks} processes cannot be divided into groups of {size}",
                hint="--shard-size divides the number of processes: the processes of a node, mostly",
            )
        return init_device_mesh(device.type, (ranks // size, size), mesh_dim_names=("replicate", "shard"))

    def set_gradient_scale(self, weight: float) -> None:
        self._weighed.set(weight)

    def _hook_gathered(self) -> Callable[[nn.Module, Any], None]:
        """Of one unit, whose whole parameters are the same objects in every gather."""
        whole: list[nn.Parameter] = []
        seen = b""

        def hook(module: nn.Module, args: Any) -> None:
            nonlocal seen
            if not whole:
                whole.extend(each for each in module.parameters() if not hasattr(each, "to_local"))
            if (
                trained := bytes(map(requires_grad, whole))
            ) != seen:  # one that was frozen may be trained now
                seen = trained
                for parameter in whole:
                    self._weighed.add(parameter)

        return hook

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self._set_deferred(True)
        try:
            yield
        finally:
            self._set_deferred(False)

    def _set_deferred(self, deferred: bool) -> None:
        if self._units is not None:
            self._units.no_sync = deferred
        for model in self._models:
            model.set_requires_gradient_sync(not deferred)

    def agree(self, overflowed: torch.Tensor) -> None:
        dist.all_reduce(overflowed, op=dist.ReduceOp.MAX)


def _refuse_sparse(model: nn.Module) -> None:
    """An error before the first step, in which torch names neither the layer nor a way out."""
    for name, module in model.named_modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse:
            raise RankupError(
                "not-with-fsdp",
                f"{name or 'the model'} has sparse gradients (sparse=True), which fsdp cannot reduce",
                hint="sparse=False, and an optimizer for dense gradients; or strategy ddp",
            )


def blocks(model: nn.Module) -> list[nn.Module]:
    """The parts of ``model`` that are gathered one by one, in order; none where nothing is to be gained.

    A block that shares a parameter with another stays with the root: a parameter has one home.
    """
    owners = Counter(id(p) for block in _candidates(model) for p in set(block.parameters()))
    elsewhere = Counter(id(p) for m in model.modules() for p in m.parameters(recurse=False))
    chosen = []
    for block in _candidates(model):
        inside = Counter(id(p) for m in block.modules() for p in m.parameters(recurse=False))
        if inside and all(owners[key] == 1 and elsewhere[key] == n for key, n in inside.items()):
            chosen.append(block)
    return chosen


def certain_blocks(model: nn.Module) -> list[nn.Module]:
    """Those of ``blocks`` that every forward runs: all of a plain ``Sequential``. What other code runs is not known."""
    plain = type(model).forward is nn.Sequential.forward and "forward" not in vars(model)
    return blocks(model) if plain else []


def _candidates(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        # A container without a forward of its own is never called: there is no moment to gather it at.
        called = type(child).forward is not nn.Module.forward
        if isinstance(module, (nn.Sequential, nn.ModuleList)) and called:
            yield child
        else:
            yield from _candidates(child)
