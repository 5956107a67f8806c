"""All ranks branch on a result that only one of them has."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.flow import comes_after
from rankup.check.facts.program.module import Call, identifiers, place
from rankup.check.facts.program.program import Program
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import replaced
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    for call in program.named("torch.distributed.reduce"):
        tensor = call.argument("tensor", 0)
        if not isinstance(tensor, ast.Name) or program.guards.limited(call.node, call.scope):
            continue
        branches: list[ast.If | ast.While] = [*call.module.of(ast.If), *call.module.of(ast.While)]
        for node in branches:
            if _decides(program, call, node, tensor.id):
                yield match(
                    call.module,
                    call.node,
                    f"reduce() gives {tensor.id} to one rank, and all ranks decide by it at "
                    f"{call.module.line(node.test.lineno)}.",
                    _all_reduce(call),
                )
                break


def _decides(program: Program, call: Call, node: ast.If | ast.While, name: str) -> bool:
    """Whether all ranks come to a condition on the number, and nothing gives it to them before."""
    scope = call.scope
    if call.module.scope_of(node) is not scope or place(node) < place(call.node):
        return False
    if name not in identifiers(node.test) or _asks_for_none(node.test, name):
        return False
    if all(isinstance(statement, ast.Raise) for statement in node.body):
        return False  # a check for NaN: the rank that sees it ends the run
    if program.guards.of(node, scope) or program.rank_test(node.test, scope) is not None:
        return False
    return not any(
        other.last in {"broadcast", "all_reduce"}
        and comes_after(other, call)
        and place(other.node) < place(node)
        for other in scope.calls
    )


def _asks_for_none(test: ast.expr, name: str) -> bool:
    """Whether a condition does not look at the number: ``loss is not None`` is the same on all ranks."""
    asked = [
        node.left
        for node in ast.walk(test)
        if isinstance(node, ast.Compare) and all(isinstance(o, (ast.Is, ast.IsNot)) for o in node.ops)
    ]
    uses = [node for node in ast.walk(test) if isinstance(node, ast.Name) and node.id == name]
    return bool(asked) and all(use in asked for use in uses)


def _all_reduce(call: Call) -> Edit:
    """The same call without its destination."""
    kept = [ast.unparse(one) for one in call.node.args[:1]]
    kept += [ast.unparse(k) for k in call.node.keywords if k.arg in {"tensor", "op", "group", "async_op"}]
    return replaced(
        call.module, call.node, f"{call.text.removesuffix('reduce')}all_reduce({', '.join(kept)})"
    )


RULE = Rule(
    code="RK209",
    name="reduce-branch",
    severity=Severity.ERROR,
    confidence=Confidence.LIKELY,
    what="The result of dist.reduce decides a branch on all ranks.",
    why="After reduce() one rank has the sum; the others keep a partial value. Ranks take different branches and then "
    "wait for each other in different collectives (pytorch#77562).",
    fix="Use all_reduce, so that all ranks decide the same.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """import torch
import torch.distributed as dist

def should_stop(loss):
    dist.reduce(loss, dst=0)
    if loss.item() < 0.1:
        return True
    return False
""",
        """import torch
import torch.distributed as dist

def loop(model):
    flag = torch.zeros(1)
    while True:
        dist.reduce(flag, 0, op=dist.ReduceOp.SUM)
        if flag > 0:
            break
""",
    ),
    silent=(
        """import torch
import torch.distributed as dist

def should_stop(loss):
    dist.all_reduce(loss)
    return bool(loss.item() < 0.1)
""",
        """import torch
import torch.distributed as dist

def report(loss):
    dist.reduce(loss, dst=0)
    if dist.get_rank() == 0:
        if loss.item() < 0.1:
            print("small")
""",
    ),
)
