"""TF32 depends on the rank or on the number of ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program import Program
from rankup.check.facts.program_module import Module, Scope
from rankup.check.facts.program_value import Kind, depends_on
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_RANKS = (Kind.RANK, Kind.LOCAL_RANK, Kind.NODE_RANK, Kind.WORLD_SIZE)


def find(program: Program) -> Iterator[Match]:
    if not program.uses_torch:
        return
    for module in program.modules:
        for scope in module.scopes.values():
            for definition in scope.definitions.get(".allow_tf32", ()):
                yield from _judged(program, module, scope, definition.at)
    for call in program.named("torch.set_float32_matmul_precision"):
        yield from _judged(program, call.module, call.scope, call.node)


def _judged(program: Program, module: Module, scope: Scope, node: ast.AST) -> Iterator[Match]:
    for holder, field in module.ancestors(node):
        if not isinstance(holder, ast.If) or field not in {"body", "orelse"}:
            continue
        if depends_on(program.values.of(holder.test, scope), *_RANKS):
            yield Match(
                module.document,
                module.span(node),
                f"The precision of float32 products depends on the condition at line {holder.lineno}, "
                "which asks for the rank or the number of ranks.",
            )
            return


RULE = Rule(
    code="RK603",
    name="tf32-differs",
    severity=Severity.WARNING,
    confidence=Confidence.SURE,
    what="TF32 is switched on for some ranks or some numbers of ranks only.",
    why="Runs on one and on several GPUs then compute with different precision, so neither their results nor their "
    "times compare.",
    fix="Set it in the same way for all runs.",
    find=find,
    fires=(
        """import torch
import torch.distributed as dist

dist.init_process_group("nccl")
if dist.get_world_size() > 1:
    torch.backends.cuda.matmul.allow_tf32 = True
""",
        """import os
import torch

if int(os.environ.get("RANK", 0)) == 0:
    torch.set_float32_matmul_precision("high")
""",
    ),
    silent=(
        """import torch

torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
""",
        """import torch

if torch.cuda.is_available():
    torch.set_float32_matmul_precision("high")
""",
    ),
)
