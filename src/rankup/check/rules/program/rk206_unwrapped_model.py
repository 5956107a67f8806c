"""A process group, training, and nothing that averages gradients."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.names import words
from rankup.check.facts.program.program import Program
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

#: Any of these may synchronise gradients, or split the model.
_SYNCHRONISES = words(
    """
    all_reduce all_reduce_coalesced reduce all_gather all_gather_into_tensor reduce_scatter reduce_scatter_tensor send
    recv isend irecv batch_isend_irecv broadcast all_to_all parallelize_module distribute_tensor distribute_module
    replicate init_device_mesh DeviceMesh rpc_sync rpc_async remote init_rpc PipelineStage pipeline
    ZeroRedundancyOptimizer register_comm_hook average_parameters DistributedOptimizer wrap auto_wrap
    functional_all_reduce
    """
)


def find(program: Program) -> Iterator[Match]:
    if not program.whole or program.frameworks or not program.inits or program.wraps:
        return
    if program.methods(*_SYNCHRONISES) or program.named(
        "torch.nn.DataParallel", "torch.nn.parallel.DataParallel"
    ):
        return
    if any("parallel" in name.lower() and not name.startswith("torch.nn") for name in _foreign(program)):
        return
    training = [loop for loop in program.data.loops if loop.trains]
    if not training or not program.methods("backward"):
        return
    call = program.inits[0]
    yield Match(
        call.module.document,
        call.span,
        "The ranks form a group and train, but no model is wrapped and no gradient is reduced.",
    )


def _foreign(program: Program) -> Iterator[str]:
    for module in program.modules:
        yield from (full for full in module.imports.values() if not full.startswith("."))


RULE = Rule(
    code="RK206",
    name="unwrapped-model",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A process group is formed and a model is trained, but gradients are not averaged.",
    why="Each rank trains a model of its own on its part of the data. The saved model is that of one rank.",
    fix="Wrap the model in DistributedDataParallel, or shard it with fully_shard.",
    find=find,
    fires=(
        """import torch
import torch.distributed as dist

def main(loader):
    dist.init_process_group("gloo")
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()

main([])
""",
        """import os
import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = torch.nn.Linear(2, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    model(torch.randn(4, 2).cuda()).sum().backward()
    optimizer.step()
dist.destroy_process_group()
""",
    ),
    silent=(
        """import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(3)
dist.broadcast(x, 0)
print(x)
""",
        """import torch.distributed as dist
from mymodel import build

dist.init_process_group("gloo")
model, optimizer = build()
for step in range(100):
    model(step).sum().backward()
    optimizer.step()
""",
    ),
)
