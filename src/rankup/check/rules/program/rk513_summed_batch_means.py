"""Means of batches that are added up over batches and ranks, and never divided."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.data import Loop
from rankup.check.facts.program.module import Call, Scope, identifiers
from rankup.check.facts.program.names import words
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import the_constant
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity

_LOSSES = words(
    "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss binary_cross_entropy binary_cross_entropy_with_logits "
    "CrossEntropyLoss NLLLoss MSELoss L1Loss SmoothL1Loss BCELoss BCEWithLogitsLoss"
)
_DIVIDES = words("div div_ divide true_divide mean")
_REDUCES = words("all_reduce reduce")


def find(program: Program) -> Iterator[Match]:
    for loop in program.data.loops if program.distributed else ():
        if not loop.evaluates:
            continue
        for node in ast.walk(loop.node):
            if not (isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add)):
                continue
            target, scope = node.target, loop.scope
            if isinstance(target, ast.Name) and _is_mean(program, node.value, loop):
                reduced = [call for call in scope.calls if call.last in _REDUCES and _takes(call, target.id)]
                if reduced and not _is_divided(program, target.id, scope):
                    yield match(
                        scope.module,
                        node,
                        f"{target.id} adds up the means of all batches of all ranks, and nothing divides it.",
                    )


def _takes(call: Call, name: str) -> bool:
    return any(isinstance(given, ast.Name) and given.id == name for given in call.given)


def _is_mean(program: Program, node: ast.expr, loop: Loop) -> bool:
    """Whether a value is the mean loss of a batch, as it is."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in ("item", "detach", "clone", "cpu", "float"):
            break
        node = node.func.value
    made = program.made(node, loop.scope)
    return bool(made) and all(_makes_a_mean(program, call) for call in made)


def _makes_a_mean(program: Program, call: Call) -> bool:
    if not call.name:  # criterion(…)
        made = program.made(call.node.func, call.scope)
        return bool(made) and all(one.name and _makes_a_mean(program, one) for one in made)
    given = program.value(call, "reduction")
    is_mean = call.argument("reduction") is None or the_constant(given) == "mean"
    return call.last in _LOSSES and call.name.startswith("torch.") and is_mean


def _is_divided(program: Program, name: str, scope: Scope, depth: int = 2) -> bool:
    """Whether a variable, or what is made of it, is divided, here or where the function's result goes."""
    names = {name}
    for known, definitions in scope.definitions.items():
        if any(one.value is not None and names & identifiers(one.value) for one in definitions):
            names.add(known)
    scaled: list[ast.AST] = [
        node.left if isinstance(node, ast.BinOp) else node.target
        for node in ast.walk(scope.node)
        if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, (ast.Div, ast.Mult))
    ]
    scaled += [call.node for call in scope.calls if call.last in _DIVIDES]
    if any(names & identifiers(one) for one in scaled):
        return True
    if not depth or not any(names & identifiers(one) for one in scope.returns):
        return False
    for site in program.graph.sites.get(scope, []):
        statement = site.call.module.statement(site.call.node)
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        results = {part for target in targets for part in identifiers(target)} & set(
            site.call.scope.definitions
        )
        if any(_is_divided(program, one, site.call.scope, depth - 1) for one in results):
            return True
    return False


RULE = Rule(
    code="RK513",
    name="summed-batch-means",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="An evaluation adds up the mean loss of each batch over batches and ranks, and shows the sum.",
    why="The number grows with the batches of the data set: with half the batch size it is twice as large, and it is "
    "not comparable with any other run's loss.",
    fix="Add loss * len(batch) up, and divide by the summed number of samples.",
    find=find,
    fires=(
        """import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import DataLoader

dist.init_process_group("nccl")

@torch.no_grad()
def evaluate(model, loader):
    total, right, count = torch.zeros(3)
    for x, y in loader:
        out = model(x)
        total += F.cross_entropy(out, y)
        right += (out.argmax(1) == y).sum()
        count += len(y)
    dist.all_reduce(total)
    dist.all_reduce(right)
    dist.all_reduce(count)
    return total, right / count

loss, accuracy = evaluate(model, DataLoader(data, 32))
print(loss, accuracy)
""",
        """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

dist.init_process_group("nccl")
criterion = torch.nn.CrossEntropyLoss()
test_loader = DataLoader(data, 32)
test_loss = torch.zeros(1)
with torch.no_grad():
    for x, y in test_loader:
        loss = criterion(model(x), y)
        test_loss += loss.detach()
dist.all_reduce(test_loss)
print("test loss", test_loss.item())
""",
    ),
    silent=(
        """import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import DataLoader

dist.init_process_group("nccl")

@torch.no_grad()
def evaluate(model, loader):
    total = torch.zeros(1)
    for x, y in loader:
        total += F.cross_entropy(model(x), y)
    dist.all_reduce(total)
    return total

loader = DataLoader(data, 32)
total = evaluate(model, loader)
print(total / len(loader) / dist.get_world_size())
""",
        """import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import DataLoader

dist.init_process_group("nccl")

@torch.no_grad()
def evaluate(model, loader):
    total = torch.zeros(1)
    for x, y in loader:
        total += F.cross_entropy(model(x), y, reduction="sum")
    dist.all_reduce(total)
    return total

print(evaluate(model, DataLoader(data, 32)))
""",
    ),
)
