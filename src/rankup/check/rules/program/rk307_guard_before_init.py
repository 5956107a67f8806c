"""A question whether the process group exists, asked before it can."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.flow import BRANCHES, LOOPS, comes_after, holders
from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.module import Call
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sounds import says
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if not program.whole or program.gets(Does.GROUP) or not program.inits:
        return
    for call in program.named("torch.distributed.is_initialized"):
        if _decides(call) and all(_is_later(program, init, call) for init in program.inits):
            init = program.inits[0]
            where = (
                "in a function"
                if init.scope is not call.scope
                else f"at {init.module.line(init.node.lineno)}"
            )
            yield match(
                call.module,
                call.node,
                f"is_initialized() is asked here, before init_process_group() {where}: the answer is always False.",
            )


def _is_later(program: Program, init: Call, call: Call) -> bool:
    """Whether a group is formed after the question, on every way."""
    if init.module is not call.module:
        return False
    if init.scope is call.scope:
        return comes_after(init, call) and not _shares_condition(call, init)
    if call.scope.parent is not None or not init.scope.is_function:
        return False
    return not any(
        init.scope in program.graph.reached(target, 6)
        for other in call.module.scope.calls
        if comes_after(call, other)
        for target in program.graph.called.get(other, ())
    )


def _shares_condition(call: Call, init: Call) -> bool:
    """``if not dist.is_initialized(): dist.init_process_group()`` is the right way round."""
    asked = holders(call.module, call.node, *BRANCHES, parts=("test",))
    return bool(
        {*asked, *holders(call.module, call.node, *LOOPS)} & set(holders(call.module, init.node, ast.AST))
    )


def _decides(call: Call) -> bool:
    """Whether the answer chooses between one process and many; a mere check may stand anywhere."""
    for holder, field in call.module.ancestors(call.node):
        if isinstance(holder, BRANCHES) and field == "test":
            return not says(holder, ("raise", "destroy", "return"))
        if isinstance(holder, (ast.Assign, ast.Assert, ast.Call)):
            return isinstance(holder, ast.Assign)
    return False


RULE = Rule(
    code="RK307",
    name="guard-before-init",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="The program asks dist.is_initialized() before it forms the process group.",
    why="The answer is False on all ranks, so each takes the way of a single process: rank 0, no sampler "
    "(deepspeed-course#16).",
    fix="Call init_process_group() first, or ask for WORLD_SIZE in the environment.",
    find=find,
    fires=(
        """import torch.distributed as dist

def main():
    rank = dist.get_rank() if dist.is_initialized() else 0
    dist.init_process_group("gloo")
    print(rank)

main()
""",
        """import torch.distributed as dist

RANK = dist.get_rank() if dist.is_initialized() else 0

def main():
    dist.init_process_group("gloo")
    print(RANK)

if __name__ == "__main__":
    main()
""",
    ),
    silent=(
        """import torch.distributed as dist

def main():
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    print(dist.get_rank())

main()
""",
        """import torch.distributed as dist

def get_rank():
    return dist.get_rank() if dist.is_initialized() else 0

def main():
    dist.init_process_group("gloo")
    print(get_rank())

main()
""",
    ),
)
