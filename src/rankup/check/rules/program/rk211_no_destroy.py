"""The process group is never taken down."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program import Program
from rankup.check.facts.program_module import Call, Scope
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import alone, lines_after, lines_before, name_for
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if not program.whole or program.frameworks or not program.inits:
        return
    if program.methods("destroy_process_group"):
        return
    call = program.inits[0]
    yield Match(
        call.module.document,
        call.span,
        "destroy_process_group() is not called anywhere.",
        _edit(program, call),
    )


def _edit(program: Program, call: Call) -> tuple[Edit, ...]:
    """At the end of the function that forms the group, or of the one that calls it for that."""
    scope, at = call.scope, call
    for _ in range(3):
        sites = program.graph.sites.get(scope, [])
        if _does_more(program, scope, at) or len(sites) != 1 or sites[0].spawned:
            break
        scope, at = sites[0].call.scope, sites[0].call
    destroy = name_for(scope.module, "torch.distributed.destroy_process_group")
    body = getattr(scope.node, "body", None)
    if destroy is None or not isinstance(body, list) or program.guards.of(call.node, call.scope):
        return ()
    last = body[-1]
    if isinstance(last, ast.If) and "__name__" in ast.unparse(last.test):
        return ()
    if not alone(scope.module, last):
        return ()
    if isinstance(last, ast.Return):
        return (lines_before(scope.module, last, f"{destroy}()"),) if last.value is None else ()
    return (lines_after(scope.module, last, f"{destroy}()"),)


def _does_more(program: Program, scope: Scope, at: Call) -> bool:
    """Whether a function goes on to train after it has formed the group."""
    return any(
        call.last
        in {"backward", "DistributedDataParallel", "DDP", "all_reduce", "barrier", "FSDP", "fully_shard"}
        or (call.node.lineno > at.node.lineno and program.graph.called.get(call))
        for call in scope.calls
    )


RULE = Rule(
    code="RK211",
    name="no-destroy",
    severity=Severity.NOTE,
    confidence=Confidence.SURE,
    what="The process group is not destroyed at the end.",
    why="NCCL warns at exit, and a rank that ends early can leave others waiting or with an abort (pytorch#122358).",
    fix="Call dist.destroy_process_group() at the end.",
    find=find,
    safety=Safety.SAFE,
    fires=(
        """import torch
import torch.distributed as dist

def main():
    dist.init_process_group("gloo")
    x = torch.ones(1)
    dist.all_reduce(x)
    print(x)

if __name__ == "__main__":
    main()
""",
        """import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(1)
dist.all_reduce(x)
print(x)
""",
    ),
    silent=(
        """import torch.distributed as dist

def main():
    dist.init_process_group("gloo")
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
""",
        """import torch.distributed as dist
from mytools import finish

dist.init_process_group("gloo")
finish()
""",
    ),
)
