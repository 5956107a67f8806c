"""The global batch is given to each rank's loader."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from rankup.check.facts.program import Program
from rankup.check.facts.program_module import Scope, identifiers
from rankup.check.facts.program_value import Kind, depends_on
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_GLOBAL = re.compile(r"(^|_)(global|total|effective)_?(batch|bs)", re.I)
_HELP = re.compile(r"total|global|effective|all (gpus|processes|ranks|nodes)|across", re.I)


def find(program: Program) -> Iterator[Match]:
    if program.frameworks or not program.inits or not program.wraps:
        return
    for loader in program.data.loaders:
        given = loader.call.argument("batch_size", 1)
        if (
            given is None
            or not loader.samplers
            or not all(s in program.data.samplers for s in loader.samplers)
        ):
            continue
        name = _global_name(program, given, loader.call.scope)
        if name:
            yield Match(
                loader.call.module.document,
                loader.call.module.span(given),
                f"Each rank's loader takes {name}, the batch of all ranks together.",
            )


def _global_name(program: Program, node: ast.expr, scope: Scope, depth: int = 0) -> str:
    value = program.values.of(node, scope)
    if depends_on(value, Kind.WORLD_SIZE, Kind.LOCAL_SIZE):
        return ""
    if isinstance(node, (ast.Name, ast.Attribute)):
        last = node.attr if isinstance(node, ast.Attribute) else node.id
        if _GLOBAL.search(last):
            return ast.unparse(node) if not _divided(program, last) else ""
        if isinstance(node, ast.Attribute):
            for option in program.values.options(last):
                text = option.argument("help")
                if (
                    isinstance(text, ast.Constant)
                    and _HELP.search(str(text.value))
                    and not _divided(program, last)
                ) and not re.search(r"\bper\b|each", str(text.value), re.I):
                    return ast.unparse(node)
        if isinstance(node, ast.Name) and depth < 3:
            found = scope.definitions.get(node.id) or scope.module.scope.definitions.get(node.id) or []
            alias = found[0].value if len(found) == 1 and not found[0].item else None
            if isinstance(alias, (ast.Name, ast.Attribute)):
                return _global_name(program, alias, scope, depth + 1)
    return ""


def _divided(program: Program, name: str) -> bool:
    """Whether the batch is divided anywhere, under whatever name."""
    for module in program.modules:
        for node in module.of(ast.BinOp, ast.AugAssign):
            if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, (ast.Div, ast.FloorDiv)):
                divided = node.left if isinstance(node, ast.BinOp) else node.target
                if name in identifiers(divided):
                    return True
    return False


RULE = Rule(
    code="RK503",
    name="global-as-local",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="The global batch size is used as that of each rank.",
    why="With N ranks the batch is N times as large as its name says: memory may not suffice, and the result differs.",
    fix="Divide it by the world size.",
    find=find,
    fires=(
        """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

def main(net, dataset, global_batch_size):
    dist.init_process_group("nccl")
    model = DDP(net)
    return DataLoader(dataset, batch_size=global_batch_size, sampler=DistributedSampler(dataset))
""",
        """import argparse
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=256, help="total batch size of all GPUs")
args = parser.parse_args()

def main(net, dataset):
    dist.init_process_group("nccl")
    model = DDP(net)
    return DataLoader(dataset, args.batch_size, sampler=DistributedSampler(dataset))
""",
    ),
    silent=(
        """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

def main(net, dataset, global_batch_size):
    dist.init_process_group("nccl")
    model = DDP(net)
    batch_size = global_batch_size // dist.get_world_size()
    return DataLoader(dataset, batch_size=batch_size, sampler=DistributedSampler(dataset))
""",
        """import argparse
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=256, help="batch size per GPU")
args = parser.parse_args()

def main(net, dataset):
    dist.init_process_group("nccl")
    model = DDP(net)
    return DataLoader(dataset, args.batch_size, sampler=DistributedSampler(dataset))
""",
    ),
)
