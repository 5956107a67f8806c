"""A rank's sum divided by the length of the whole data set."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.data import Loader
from rankup.check.facts.program.module import Scope
from rankup.check.facts.program.program import Program
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_REDUCES = {
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "all_gather_object",
    "reduce_tensor",
    "reduce_mean",
    "sync",
}


def find(program: Program) -> Iterator[Match]:
    if not program.whole or program.frameworks or not program.inits:
        return
    for loader in program.data.loaders:
        samplers = [s for s in loader.samplers if s in program.data.samplers]
        if not samplers or len(samplers) != len(loader.samplers):
            continue
        data = loader.call.argument("dataset", 0)
        for loop in loader.loops:
            if any(
                call.last in _REDUCES or "reduce" in call.last or "gather" in call.last
                for call in loop.scope.calls
            ):
                continue
            if _others_add_up(program, loop.scope):
                continue
            for node, text in _divisions(loop.scope, _lengths(loader, loop.node, loop.scope, data)):
                yield Match(
                    loop.scope.module.document,
                    loop.scope.module.span(node),
                    f"A rank's sum is divided by {text}, the length of all the data, of which it has seen a part.",
                )


def _lengths(loader: Loader, node: ast.AST, scope: Scope, data: ast.expr | None) -> set[str]:
    """How the length of the whole data set may be written in the loop's function."""
    found: set[str] = set()
    if isinstance(node, (ast.For, ast.AsyncFor)):
        over = node.iter
        while isinstance(over, ast.Call) and over.args:
            over = over.args[0]
        found.add(f"len({ast.unparse(over)}.dataset)")
    if isinstance(data, ast.Name) or (isinstance(data, ast.Attribute) and _in_one_class(loader, scope)):
        found.add(f"len({ast.unparse(data)})")
    return found


def _in_one_class(loader: Loader, scope: Scope) -> bool:
    """Whether ``self.data`` is the same for the loader and for the function of the loop."""
    return scope.parent is not None and scope.parent.is_class and scope.parent is loader.call.scope.parent


def _divisions(scope: Scope, lengths: set[str]) -> Iterator[tuple[ast.BinOp, str]]:
    for node in scope.module.of(ast.BinOp):
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Div)
            and scope.module.scope_of(node) is scope
        ):
            text = ast.unparse(node.right)
            if text in lengths and not isinstance(node.left, ast.Constant):
                yield node, text


def _others_add_up(program: Program, scope: Scope) -> bool:
    """Whether a caller adds up what the function returns."""
    return any(
        call.last in _REDUCES or "reduce" in call.last
        for site in program.graph.sites.get(scope, ())
        for call in site.call.scope.calls
    )


RULE = Rule(
    code="RK315",
    name="shard-by-whole",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="The sum over a rank's part of the data is divided by the length of the whole data set.",
    why="With N ranks the loss or accuracy that is shown is 1/N of the true one.",
    fix="Add the sums up with all_reduce and divide by the summed counts.",
    find=find,
    fires=(
        """import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def main(dataset, model, optimizer):
    dist.init_process_group("nccl")
    loader = DataLoader(dataset, 32, sampler=DistributedSampler(dataset))
    total = 0.0
    for x, y in loader:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(x)
    print(total / len(loader.dataset))

main([], None, None)
""",
        """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

@torch.no_grad()
def accuracy(model, loader):
    right = 0
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum().item()
    return 100.0 * right / len(loader.dataset)

def main(dataset, model):
    dist.init_process_group("nccl")
    test_loader = DataLoader(dataset, 32, sampler=DistributedSampler(dataset, shuffle=False))
    print(accuracy(model, test_loader))

main([], None)
""",
    ),
    silent=(
        """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def main(dataset, model):
    dist.init_process_group("nccl")
    loader = DataLoader(dataset, 32, sampler=DistributedSampler(dataset))
    right = torch.zeros(1)
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum()
    dist.all_reduce(right)
    print(right / len(loader.dataset))

main([], None)
""",
        """from torch.utils.data import DataLoader

def main(dataset, model):
    loader = DataLoader(dataset, 32)
    right = 0
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum().item()
    print(right / len(loader.dataset))

main([], None)
""",
    ),
)
