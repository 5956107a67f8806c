"""The global batch is given to each rank's loader."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.module import Scope, identifiers, last_name
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sounds import GLOBAL_BATCH, GLOBAL_HELP, LOCAL_HELP
from rankup.check.facts.program.value import Kind, depends_on
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import dividing, match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    for loader in program.data.loaders if program.averages and not program.gets(Does.SAMPLER) else ():
        given = loader.call.argument("batch_size", 1)
        if given is not None and dividing(program, loader) and _is_global(program, given, loader.call.scope):
            name = ast.unparse(_origin(given, loader.call.scope))
            yield match(
                loader.call.module,
                given,
                f"Each rank's loader takes {name}, the batch of all ranks together.",
            )


def _is_global(program: Program, node: ast.expr, scope: Scope) -> bool:
    """Whether a number is called a batch of all ranks, by its name or by an option's help, and nothing divides it."""
    if depends_on(program.values.of(node, scope), Kind.WORLD_SIZE, Kind.LOCAL_SIZE):
        return False
    origin = _origin(node, scope)
    name = last_name(origin)
    helps = [option.argument("help") for option in program.values.options(name)]
    texts = [str(one.value) for one in helps if isinstance(one, ast.Constant)]
    if not isinstance(origin, (ast.Name, ast.Attribute)) or _is_divided(program, name):
        return False
    return bool(GLOBAL_BATCH.search(name)) or (
        isinstance(origin, ast.Attribute)
        and any(GLOBAL_HELP.search(text) and not LOCAL_HELP.search(text) for text in texts)
    )


def _origin(node: ast.expr, scope: Scope) -> ast.expr:
    """What a name is an alias of: ``batch = args.batch_size``."""
    for _ in range(3):
        if not isinstance(node, ast.Name) or GLOBAL_BATCH.search(node.id):
            break
        found = scope.definitions.get(node.id) or scope.module.scope.definitions.get(node.id) or []
        alias = found[0].value if len(found) == 1 and not found[0].item else None
        if not isinstance(alias, (ast.Name, ast.Attribute)):
            break
        node = alias
    return node


def _is_divided(program: Program, name: str) -> bool:
    """Whether the batch is divided anywhere, under whatever name."""
    for module in program.modules:
        divided = [(node.op, node.left) for node in module.of(ast.BinOp)]
        divided += [(node.op, node.target) for node in module.of(ast.AugAssign)]
        for operator, whole in divided:
            if isinstance(operator, (ast.Div, ast.FloorDiv)) and name in identifiers(whole):
                return True
    return False


_BY_NAME = """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

def main(net, dataset, global_batch_size):
    dist.init_process_group("nccl")
    model = DDP(net)
    return DataLoader(dataset, batch_size=global_batch_size, sampler=DistributedSampler(dataset))
"""
_BY_HELP = """import argparse
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
"""

RULE = Rule(
    code="RK503",
    name="global-as-local",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="The global batch size is used as that of each rank.",
    why="With N ranks the batch is N times as large as its name says: memory may not suffice, and the result differs.",
    fix="Divide it by the world size.",
    find=find,
    fires=(_BY_NAME, _BY_HELP),
    silent=(
        _BY_NAME.replace("=global_batch_size", "=global_batch_size // dist.get_world_size()"),
        _BY_HELP.replace("total batch size of all GPUs", "batch size per GPU"),
    ),
)
