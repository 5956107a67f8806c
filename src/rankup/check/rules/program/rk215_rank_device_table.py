"""A table that says which rank has which GPU."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program import Program
from rankup.check.facts.program_module import Module, Scope
from rankup.check.facts.program_value import Kind, is_only
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if not program.uses_torch:
        return
    for module in program.modules:
        for node in module.of(ast.Subscript):
            if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
                continue
            scope = module.scope_of(node)
            table = _table(node.value, scope, module)
            if table is None or not _is_used_as_device(program, node, scope):
                continue
            if is_only(program.values.of(node.slice, scope), Kind.RANK):
                yield Match(
                    module.document,
                    module.span(node),
                    f"A table of {table} entries chooses the GPU of each rank; rank {table} has none.",
                )


def _table(node: ast.expr, scope: Scope, module: Module) -> int | None:
    """The number of entries of a constant table of devices."""
    if isinstance(node, ast.Name):
        found = scope.definitions.get(node.id) or module.scope.definitions.get(node.id) or []
        if len(found) != 1 or found[0].value is None or found[0].item or found[0].path:
            return None
        node = found[0].value
    values: list[ast.expr | None] = []
    if isinstance(node, ast.Dict):
        values = list(node.values)
    elif isinstance(node, (ast.List, ast.Tuple)):
        values = list(node.elts)
    if len(values) < 2:
        return None
    for value in values:
        if not isinstance(value, ast.Constant):
            return None
        if not (isinstance(value.value, int) or str(value.value).startswith("cuda")):
            return None
    return len(values)


def _is_used_as_device(program: Program, node: ast.Subscript, scope: Scope) -> bool:
    """Whether the entry becomes a device: in the call around it, or by the name that it gets."""
    module = scope.module
    for holder, _ in module.ancestors(node):
        if isinstance(holder, ast.Call):
            return ast.unparse(holder.func).rpartition(".")[2] in {"set_device", "device", "to", "cuda"}
        if isinstance(holder, ast.Assign):
            return any(word in ast.unparse(holder.targets[0]).lower() for word in ("device", "gpu", "local"))
    return False


RULE = Rule(
    code="RK215",
    name="rank-device-table",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A constant table gives each rank its GPU.",
    why="The table fits one number of ranks on one kind of node. With one rank more the program fails.",
    fix="Use the local rank, or rank % torch.cuda.device_count().",
    find=find,
    fires=(
        """import torch
import torch.distributed as dist

GPUS = {0: 0, 1: 1, 2: 0, 3: 1}
dist.init_process_group("nccl")
torch.cuda.set_device(GPUS[dist.get_rank()])
""",
        """import os
import torch

devices = ["cuda:0", "cuda:1"]
rank = int(os.environ["RANK"])
device = devices[rank]
""",
    ),
    silent=(
        """import os
import torch

names = ["train", "valid"]
rank = int(os.environ["RANK"])
print(names[rank])
""",
        """import torch
import torch.distributed as dist

devices = list(range(torch.cuda.device_count()))
torch.cuda.set_device(devices[dist.get_rank() % len(devices)])
""",
    ),
)
