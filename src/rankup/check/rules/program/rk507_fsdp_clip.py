"""Gradients of a sharded model are clipped by the norm of one rank's part."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.module import Call, torch_last
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import Kind, kinds, objects
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if program.frameworks:
        return
    for call in program.named("clip_grad_norm_"):
        given = call.argument("parameters", 0)
        if not isinstance(given, ast.Call) or not isinstance(given.func, ast.Attribute):
            continue
        if given.func.attr != "parameters" or given.args or given.keywords:
            continue
        if _is_sharded(program, given.func.value, call):
            yield Match(
                call.module.document,
                call.span,
                f"{ast.unparse(call.node.func)}() sees one rank's part of the gradients of "
                f"{ast.unparse(given.func.value)}, which FSDP shards.",
                _edit(call, given.func.value),
            )


def _is_sharded(program: Program, model: ast.expr, call: Call) -> bool:
    """Whether a model is certainly wrapped by FullyShardedDataParallel, with parameters that are sharded."""
    value = program.values.of(model, call.scope)
    made = objects(value)
    if not made or kinds(value) != {Kind.OBJECT}:
        return False
    return all(
        one in program.wraps
        and torch_last(one) == "FullyShardedDataParallel"
        and not one.spread
        and one.argument("sharding_strategy", 2) is None  # NO_SHARD has whole gradients
        for one in made
    )


def _edit(call: Call, model: ast.expr) -> tuple[Edit, ...]:
    most = call.argument("max_norm", 1)
    if most is None or len(call.node.args) + len(call.node.keywords) != 2:
        return ()
    return (Edit(call.span, f"{ast.unparse(model)}.clip_grad_norm_({ast.unparse(most)})"),)


_HEAD = """import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
"""
_STEP = """optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 8)).sum().backward()
"""
_END = """optimizer.step()
optimizer.zero_grad()
dist.destroy_process_group()
"""

RULE = Rule(
    code="RK507",
    name="fsdp-clip",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="Gradients of a model in FullyShardedDataParallel are clipped by torch.nn.utils.clip_grad_norm_.",
    why="Each rank has a part of the gradients, computes the norm of that part, and scales it by a factor of its own: "
    "the parts of one gradient no longer fit each other. The documentation of FSDP asks for its own method.",
    fix="Call model.clip_grad_norm_(max_norm), the method of the wrapped model.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        _HEAD
        + "model = FSDP(torch.nn.Linear(8, 2))\n"
        + _STEP
        + "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        + _END,
        _HEAD
        + "model = FSDP(torch.nn.Linear(8, 2), device_id=0)\n"
        + _STEP
        + "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)\n"
        + _END,
    ),
    silent=(
        _HEAD + "model = FSDP(torch.nn.Linear(8, 2))\n" + _STEP + "model.clip_grad_norm_(1.0)\n" + _END,
        _HEAD
        + "model = DDP(torch.nn.Linear(8, 2))\n"
        + _STEP
        + "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        + _END,
    ),
)
