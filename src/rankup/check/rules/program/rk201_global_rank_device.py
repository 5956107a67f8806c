"""The global rank, or a table of it, chooses the GPU. A warning if it is not known on how many nodes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from rankup.check.facts.program.flow import holders
from rankup.check.facts.program.module import Module, Scope, last_name
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sounds import DEVICE, ONE_MACHINE, sounds
from rankup.check.facts.program.value import Kind, constants, is_only
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import name_for, replaced
from rankup.check.rules.queries import Choice, device_choices, match, moves
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if not program.uses_torch:
        return
    yield from _by_table(program)
    if (_on_one_machine(program) and not program.many_nodes) or "xla" in program.frameworks:
        return
    severity, confidence = Severity.WARNING, Confidence.LIKELY
    if program.many_nodes:
        severity, confidence = Severity.ERROR, Confidence.SURE
    elif program.one_node:
        severity = Severity.NOTE
    chosen = [one for one in device_choices(program) if _is_rank(program, one)]
    for one in chosen or [one for one in moves(program) if _is_rank(program, one)]:
        value = program.values.of(one.number, one.scope)
        sources = sorted({str(atom.detail) for atom in value if atom.kind is Kind.RANK and atom.detail})
        yield match(
            one.module,
            one.node,
            f"{one.by} gets the global rank ({', '.join(sources) or ast.unparse(one.number)}), not the rank within "
            "the node.",
            *_modulo(one),
            severity=severity,
            confidence=confidence,
        )


def _is_rank(program: Program, one: Choice) -> bool:
    return is_only(program.values.of(one.number, one.scope), Kind.RANK)


def _modulo(one: Choice) -> tuple[Edit, ...]:
    """The rank modulo the number of GPUs: on one node the same number, on others the local one."""
    count = name_for(one.module, "torch.cuda.device_count")
    if count is None or isinstance(one.number, ast.BinOp):
        return ()
    if isinstance(one.node, ast.JoinedStr):
        return (replaced(one.module, one.node, f'f"cuda:{{{ast.unparse(one.number)} % {count}()}}"'),)
    return (replaced(one.module, one.node, f"{one.module.document[one.module.span(one.node)]} % {count}()"),)


def _on_one_machine(program: Program) -> bool:
    """Whether the program itself says that all of its ranks are on one machine."""
    if ONE_MACHINE.search(PurePosixPath(program.document.path).name):
        return True
    if program.spawns:
        ranks = [atom for call in program.inits for atom in program.value(call, "rank", 4)]
        return not any(atom.kind is Kind.RANK and atom.detail == "sum" for atom in ranks)
    for call in program.inits:
        size = program.value(call, "world_size", 3)
        if size and (is_only(size, Kind.LOCAL_SIZE) or len(constants(size)) == len(size)):
            return -1 not in constants(size)
    return False


def _by_table(program: Program) -> Iterator[Match]:
    """``set_device([0, 1, 0, 1][rank])``"""
    for module in program.modules:
        for node in module.of(ast.Subscript):
            if not isinstance(node.ctx, ast.Load):
                continue
            scope = module.scope_of(node)
            size = _table_size(node.value, scope)
            if (
                size
                and _becomes_device(module, node)
                and is_only(program.values.of(node.slice, scope), Kind.RANK)
            ):
                yield match(
                    module,
                    node,
                    f"A table of {size} entries chooses the GPU of each rank; rank {size} has none.",
                    fix="Use the local rank, or rank % torch.cuda.device_count().",
                )


def _table_size(node: ast.expr, scope: Scope) -> int:
    """The number of entries of a constant table of devices; 0 if it is none."""
    if isinstance(node, ast.Name):
        found = scope.definitions.get(node.id) or scope.module.scope.definitions.get(node.id) or []
        if len(found) != 1 or found[0].value is None or found[0].item or found[0].path:
            return 0
        node = found[0].value
    entries = node.values if isinstance(node, ast.Dict) else getattr(node, "elts", [])
    numbers = [entry.value for entry in entries if isinstance(entry, ast.Constant)]
    devices = all(isinstance(number, int) or str(number).startswith("cuda") for number in numbers)
    return len(numbers) if len(entries) == len(numbers) > 1 and devices else 0


def _becomes_device(module: Module, node: ast.Subscript) -> bool:
    """Whether the entry becomes a device: in the call around it, or by the name that it gets."""
    around = holders(module, node, ast.Call, ast.Assign)
    if around and isinstance(around[0], ast.Call):
        return last_name(around[0]) in {"set_device", "device", "to", "cuda"}
    return bool(around) and isinstance(around[0], ast.Assign) and sounds(around[0].targets[0], DEVICE)


RULE = Rule(
    code="RK201",
    name="global-rank-device",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="The GPU of a process is chosen by its global rank, or by a constant table of ranks.",
    why="Ranks count over all nodes, GPUs on each node from 0: on the second of two nodes with four GPUs, rank 4 asks "
    "for cuda:4 and fails with 'invalid device ordinal' (llama-cookbook#90).",
    fix="Use the local rank: int(os.environ['LOCAL_RANK']) with torchrun, SLURM_LOCALID with srun, or rank % "
    "torch.cuda.device_count().",
    find=find,
    safety=Safety.SAFE,
    fires=(
        """import os
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
model = torch.nn.Linear(2, 2).cuda()
""",
        """import os
import torch
import torch.distributed as dist

def train(rank):
    model = torch.nn.Linear(2, 2).to(rank)

dist.init_process_group("nccl")
train(int(os.environ["SLURM_PROCID"]))
""",
    ),
    silent=(
        """import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank % torch.cuda.device_count())
""",
        """import os
import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
local_rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl", rank=rank)
torch.cuda.set_device(local_rank)
""",
    ),
)
