"""The optimizer gets the parameters that fully_shard then replaces."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.flow import comes_after
from rankup.check.facts.program.module import Call, same, torch_last
from rankup.check.facts.program.program import Program
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import makes_optimizer, match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    for wrap in program.wraps if not program.methods("add_param_group") else ():
        model = wrap.argument("module", 0)
        if torch_last(wrap) != "fully_shard" or model is None:
            continue
        made = [call for call in wrap.scope.calls if _takes_all_of(program, call, model)]
        if made and all(comes_after(wrap, call) for call in made):
            yield match(
                made[0].module,
                made[0].node,
                f"{made[0].last} gets the parameters of {ast.unparse(model)}, and fully_shard at "
                f"{wrap.module.line(wrap.node.lineno)} replaces them: no step changes the model.",
            )


def _takes_all_of(program: Program, call: Call, model: ast.expr) -> bool:
    """``torch.optim.Adam(model.parameters())``"""
    asked = program.values.call(call.argument("params", 0) or call.node) if makes_optimizer(call) else None
    return asked is not None and asked.last in {"parameters", "named_parameters"} and same(asked.base, model)


_HEAD = """import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
"""

RULE = Rule(
    code="RK511",
    name="optimizer-before-shard",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="The optimizer is made before fully_shard.",
    why="The optimizer holds parameters that fully_shard replaces by new ones (DTensors). The old ones get no "
    "gradient: every step does nothing, and the model stays as it was, without a message (measured with torch 2.13).",
    fix="Call fully_shard first, and make the optimizer afterwards.",
    find=find,
    fires=(
        _HEAD
        + """optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for layer in model:
    fully_shard(layer)
fully_shard(model)
""",
        _HEAD
        + """optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model = fully_shard(model)
for x in range(10):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    ),
    silent=(
        _HEAD
        + """for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
""",
        _HEAD
        + """teacher = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
fully_shard(teacher)
""",
    ),
)
