"""NCCL without a choice of the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.module import Call
from rankup.check.facts.program.names import words
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import Kind, Value, constant, constants, kinds, the_constant
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import alone, lines_after, name_for
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity

_CHOOSERS = words(
    "set_device device_ids _set_device current_device set_local_device set_device_index set_default_device"
)
_LISTS = (".CUDA_VISIBLE_DEVICES", ".HIP_VISIBLE_DEVICES")


def find(program: Program) -> Iterator[Match]:
    if not program.whole or program.gets(Does.DEVICE) or program.methods(*_CHOOSERS):
        return
    if program.starts and all(start.processes_per_node == 1 for start in program.starts):
        return
    devices = list(_devices(program))
    if not any(map(_is_bare, devices)) or _chooses(program, devices):
        return
    for call in program.inits:
        backend = the_constant(program.value(call, "backend", 0))
        if "nccl" in str(backend) and not call.spread and "device_id" not in call.keywords:
            yield match(
                call.module,
                call.node,
                "NCCL is started and no rank chooses its GPU: all ranks of a node use cuda:0.",
                *_edit(call),
            )


def _devices(program: Program) -> Iterator[Value]:
    """Where the program puts things."""
    for call in program.named("torch.device"):
        yield program.values.of(call.node, call.scope)
    for call in program.methods("to", "cuda"):
        if call.base is not None and call.last == "cuda" and not call.given:
            yield constant("cuda")
        elif call.base is not None and call.node.args:
            yield program.values.of(call.node.args[0], call.scope)


def _is_bare(value: Value) -> bool:
    """Whether a value can be "cuda" without a number."""
    return "cuda" in constants(value) or any(
        atom.kind is Kind.DEVICE and atom.detail[0] == "cuda" and not atom.detail[1] for atom in value
    )


def _chooses(program: Program, devices: list[Value]) -> bool:
    """Whether anything can be a choice of a GPU. What is not known can."""
    if any(call.given for call in program.methods("cuda")) or program.named("torch.cuda.device"):
        return True
    if any("device_ids" in call.keywords or len(call.node.args) > 1 for call in program.wraps):
        return True
    for value in devices:
        numbers = [text for text in constants(value) if isinstance(text, int) or ":" in str(text)]
        if numbers or kinds(value) & {Kind.RANK, Kind.LOCAL_RANK, Kind.OPTION, Kind.COMPUTED, Kind.ITEM}:
            return True
        if any(atom.kind is Kind.DEVICE and atom.detail[1] for atom in value):
            return True
    scopes = [scope for module in program.modules for scope in module.scopes.values()]
    return any(name in scope.definitions for scope in scopes for name in _LISTS)


def _edit(call: Call) -> tuple[Edit, ...]:
    module, statement = call.module, call.module.statement(call.node)
    rank, cuda = name_for(module, "torch.distributed.get_rank"), name_for(module, "torch.cuda")
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
