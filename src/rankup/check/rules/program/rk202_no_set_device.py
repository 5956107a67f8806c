"""NCCL without a choice of the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.module import Call
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import Kind, Value, constants, kinds, the_constant
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import alone, lines_after, name_for
from rankup.findings.finding import Confidence, Severity

_CHOOSERS = ("set_device", "device_ids", "_set_device", "current_device", "set_local_device")


def find(program: Program) -> Iterator[Match]:
    if not program.whole or program.frameworks or not program.inits or program.methods(*_CHOOSERS):
        return
    if program.starts and all(start.processes_per_node == 1 for start in program.starts):
        return
    if not _puts_on_cuda(program) or _chooses(program):
        return
    for call in program.inits:
        backend = the_constant(program.value(call, "backend", 0))
        if (
            not isinstance(backend, str)
            or "nccl" not in backend
            or call.spread
            or "device_id" in call.keywords
        ):
            continue
        yield Match(
            call.module.document,
            call.span,
            "NCCL is started and no rank chooses its GPU: all ranks of a node use cuda:0.",
            _edit(call),
        )


def _puts_on_cuda(program: Program) -> bool:
    if any(
        call.base is not None and not call.node.args and not call.node.keywords
        for call in program.methods("cuda")
    ):
        return True
    return any(_is_bare(value) for value in _devices(program))


def _devices(program: Program) -> Iterator[Value]:
    for call in program.named("torch.device"):
        yield program.values.of(call.node, call.scope)
    for call in program.methods("to"):
        if call.base is not None and call.node.args:
            yield program.values.of(call.node.args[0], call.scope)


def _is_bare(value: Value) -> bool:
    """Whether a value can be "cuda" without a number."""
    return any(
        (atom.kind is Kind.DEVICE and atom.detail[0] == "cuda" and not atom.detail[1])
        or (atom.kind is Kind.CONSTANT and atom.detail.value == "cuda")
        for atom in value
    )


def _chooses(program: Program) -> bool:
    """Whether anything can be a choice of a GPU. What is not known can."""
    for call in program.methods("cuda"):
        if call.node.args or call.node.keywords:
            return True
    if any("device_ids" in call.keywords or len(call.node.args) > 1 for call in program.wraps):
        return True
    for value in _devices(program):
        if kinds(value) & {Kind.RANK, Kind.LOCAL_RANK, Kind.OPTION, Kind.COMPUTED, Kind.ITEM}:
            return True
        if any(atom.kind is Kind.DEVICE and atom.detail[1] for atom in value):
            return True
        if any(
            isinstance(number, int) or (isinstance(number, str) and ":" in number)
            for number in constants(value)
        ):
            return True
    for module in program.modules:
        for name in (".CUDA_VISIBLE_DEVICES", ".HIP_VISIBLE_DEVICES"):
            if any(name in scope.definitions for scope in module.scopes.values()):
                return True
    return bool(
        program.named("torch.cuda.device", "torch.accelerator.set_device_index", "torch.set_default_device")
    )


def _edit(call: Call) -> tuple[Edit, ...]:
    module = call.module
    statement = module.statement(call.node)
    rank = name_for(module, "torch.distributed.get_rank")
    cuda = name_for(module, "torch.cuda")
    if rank is None or cuda is None or not alone(module, statement):
        return ()
    return (lines_after(module, statement, f"{cuda}.set_device({rank}() % {cuda}.device_count())"),)


RULE = Rule(
    code="RK202",
    name="no-set-device",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="The program starts NCCL, and no rank chooses its GPU.",
    why="Without a choice all ranks of a node use cuda:0. NCCL stops with 'Duplicate GPU detected', or the first GPU "
    "runs out of memory (Megatron#661). With one visible GPU per task the program is right.",
    fix="Call torch.cuda.set_device(local_rank) at the start.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """import torch
import torch.distributed as dist

dist.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).cuda())
print(model)
""",
        """import torch
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main():
    dist.init_process_group(backend="nccl")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = DDP(torch.nn.Linear(2, 2).to(device))

main()
""",
    ),
    silent=(
        """import os
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
model = torch.nn.Linear(2, 2).to(device)
print(model)
""",
        """import deepspeed
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
model = torch.nn.Linear(2, 2).cuda()
print(model)
""",
    ),
)
