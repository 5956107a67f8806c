"""Gradients of a sharded model are clipped by the norm of one rank's part."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.module import Call, torch_last
from rankup.check.facts.program.program import Program
from rankup.check.rule import Match, Rule, Safety
from rankup.check.rules.edits import replaced
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    for call in program.named("clip_grad_norm_"):
        asked = program.values.call(call.argument("parameters", 0) or call.node)
        if asked is None or asked.last != "parameters" or asked.base is None or asked.given:
            continue
        model, most = ast.unparse(asked.base), call.argument("max_norm", 1)
        if program.surely(asked.base, call.scope, lambda one: _shards(program, one)):
            edits = []
            if most is not None and len(call.given) == 2:
                edits = [replaced(call.module, call.node, f"{model}.clip_grad_norm_({ast.unparse(most)})")]
            yield match(
                call.module,
                call.node,
                f"{call.text}() sees one rank's part of the gradients of {model}, which FSDP shards.",
                *edits,
            )


def _shards(program: Program, one: Call) -> bool:
    """Whether a call wraps a model by FullyShardedDataParallel, with parameters that are certainly sharded."""
    whole = one.spread or one.argument("sharding_strategy", 2) is not None  # NO_SHARD has whole gradients
    return one in program.wraps and torch_last(one) == "FullyShardedDataParallel" and not whole


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
