"""A question whether the process group exists, asked before it can."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program import Program
from rankup.check.facts.program_module import Call, place
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if not program.whole or program.frameworks or not program.inits:
        return
    for call in program.named("torch.distributed.is_initialized"):
        init = _later_init(program, call)
        if init is None or not _decides(call):
            continue
        where = "in a function" if init.scope is not call.scope else f"at line {init.node.lineno}"
        yield Match(
            call.module.document,
            call.span,
            f"is_initialized() is asked here, before init_process_group() {where}: the answer is always False.",
        )


def _later_init(program: Program, call: Call) -> Call | None:
    """The init that comes after the question on every way."""
    in_module = call.scope.parent is None
    for init in program.inits:
        if init.module is not call.module:
            return None
        if init.scope is call.scope:
            if place(init.node) < place(call.node) or _shares_condition(call, init):
                return None
        elif not (in_module and init.scope.is_function and not _called_before(program, init, call)):
            return None
    callers = [site.call.scope for init in program.inits for site in program.graph.sites.get(init.scope, [])]
    if call.scope in callers and not in_module:
        return None
    return program.inits[0] if program.inits else None


def _called_before(program: Program, init: Call, call: Call) -> bool:
    """Whether a statement of the module that comes first runs the function with the init."""
    return any(
        other.scope is call.scope
        and place(other.node) < place(call.node)
        and any(
            init.scope in program.graph.reached(target, 6) for target in program.graph.called.get(other, ())
        )
        for other in call.module.scope.calls
    )


def _shares_condition(call: Call, init: Call) -> bool:
    """``if not dist.is_initialized(): dist.init_process_group()`` is the right way round."""
    module = call.module
    tests = [
        holder
        for holder, field in module.ancestors(call.node)
        if isinstance(holder, (ast.If, ast.IfExp)) and field == "test"
    ]
    around = {holder for holder, _ in module.ancestors(init.node)}
    if any(test in around for test in tests):
        return True
    loops = {holder for holder, _ in module.ancestors(call.node) if isinstance(holder, (ast.For, ast.While))}
    return bool(loops & around)


def _decides(call: Call) -> bool:
    """Whether the answer chooses between one process and many; a mere check may stand anywhere."""
    for holder, field in call.module.ancestors(call.node):
        if isinstance(holder, (ast.If, ast.IfExp)) and field == "test":
            text = ast.unparse(holder)
            return "raise" not in text and "destroy" not in text and "return" not in text
        if isinstance(holder, ast.Assign):
            return True
        if isinstance(holder, (ast.Assert, ast.Call)):
            return False
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
