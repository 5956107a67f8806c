"""The global rank chooses the GPU."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from rankup.check.facts.program.module import Call, Module, Scope
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import Kind, Value, constants, is_only
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import name_for, replaced
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if not program.uses_torch or _on_one_machine(program) or "xla" in program.frameworks:
        return
    strong = list(_chosen(program))
    for module, node, scope, what in strong or list(_moved(program)):
        span = module.span(node)
        text = module.document[span]
        source = _source(program.values.of(node, scope)) or text
        severity, confidence = Severity.WARNING, Confidence.LIKELY
        if program.many_nodes:
            severity, confidence = Severity.ERROR, Confidence.SURE
        elif program.one_node:
            severity = Severity.NOTE
        yield Match(
            module.document,
            span,
            f"{what} gets the global rank ({source}), not the rank within the node.",
            _modulo(module, node, text),
            severity=severity,
            confidence=confidence,
        )


def _modulo(module: Module, node: ast.AST, text: str) -> tuple[Edit, ...]:
    """The rank modulo the number of GPUs: on one node the same number, on others the local one."""
    count = name_for(module, "torch.cuda.device_count")
    if count is None or isinstance(node, ast.BinOp):
        return ()
    if not isinstance(node, ast.JoinedStr):
        return (replaced(module, node, f"{text} % {count}()"),)
    inner = node.values[1]
    if not isinstance(inner, ast.FormattedValue):
        return ()
    return (replaced(module, node, f'f"cuda:{{{ast.unparse(inner.value)} % {count}()}}"'),)


def _on_one_machine(program: Program) -> bool:
    """Whether the program itself says that all of its ranks are on one machine."""
    if re.search(
        r"(single|one)[-_ ]?(node|machine)|standalone", PurePosixPath(program.document.path).name, re.I
    ):
        return True
    if program.spawns:
        return not any(
            atom.kind is Kind.RANK and atom.detail == "sum"
            for call in program.inits
            for atom in program.value(call, "rank", 4)
        )
    for call in program.inits:
        size = program.value(call, "world_size", 3)
        if size and (is_only(size, Kind.LOCAL_SIZE) or len(constants(size)) == len(size)):
            return -1 not in constants(size)
    return False


def _chosen(program: Program) -> Iterator[tuple[Module, ast.AST, Scope, str]]:
    for call in program.named("torch.cuda.set_device", "torch.xpu.set_device"):
        given = call.argument("device", 0)
        if given is not None and _is_rank(program, given, call.scope):
            yield call.module, given, call.scope, f"{_written(call)}()"
    for call in program.named("torch.device"):
        index = call.argument("index", 1)
        kind = call.argument("type", 0)
        if index is not None and _is_rank(program, index, call.scope):
            yield call.module, index, call.scope, "torch.device()"
        elif index is None and kind is not None and _is_rank(program, kind, call.scope):
            yield call.module, kind, call.scope, "torch.device()"
    for call in program.named("DistributedDataParallel"):
        given = call.argument("device_ids", 1)
        if (
            isinstance(given, ast.List)
            and len(given.elts) == 1
            and _is_rank(program, given.elts[0], call.scope)
        ):
            yield call.module, given.elts[0], call.scope, "device_ids of DistributedDataParallel"
    for module in program.modules:
        for node in module.of(ast.JoinedStr):
            scope = module.scope_of(node)
            if _is_device_text(program, node, scope):
                yield module, node, scope, "The device's name"


def _moved(program: Program) -> Iterator[tuple[Module, ast.AST, Scope, str]]:
    for call in program.methods("to", "cuda"):
        if call.base is None or call.name:
            continue
        given = call.argument("device", 0)
        if given is not None and _is_rank(program, given, call.scope):
            yield call.module, given, call.scope, f".{call.last}()"


def _is_rank(program: Program, node: ast.expr, scope: Scope) -> bool:
    return is_only(program.values.of(node, scope), Kind.RANK)


def _is_device_text(program: Program, node: ast.AST, scope: Scope) -> bool:
    if not isinstance(node, ast.JoinedStr) or len(node.values) != 2:
        return False
    start, inner = node.values
    return (
        isinstance(start, ast.Constant)
        and start.value in {"cuda:", "xpu:"}
        and isinstance(inner, ast.FormattedValue)
        and _is_rank(program, inner.value, scope)
    )


def _source(value: Value) -> str:
    found = sorted({str(atom.detail) for atom in value if atom.kind is Kind.RANK and atom.detail})
    return ", ".join(found)


def _written(call: Call) -> str:
    return ast.unparse(call.node.func)


RULE = Rule(
    code="RK201",
    name="global-rank-device",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="The GPU of a process is chosen by its global rank.",
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
