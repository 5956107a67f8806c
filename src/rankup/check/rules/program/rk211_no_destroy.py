"""The process group is never taken down."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.flow import comes_after
from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.module import Call, Scope
from rankup.check.facts.program.names import words
from rankup.check.facts.program.program import Program
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import alone, lines_after, lines_before, name_for, surely_before
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity

_TRAINS = words("backward DistributedDataParallel DDP all_reduce barrier FSDP fully_shard")


def find(program: Program) -> Iterator[Match]:
    if not program.whole or program.gets(Does.GROUP) or program.methods("destroy_process_group"):
        return
    for call in program.inits[:1]:
        edits = _edit(program, call)
        yield match(call.module, call.node, "destroy_process_group() is not called anywhere.", *edits)


def _edit(program: Program, call: Call) -> tuple[Edit, ...]:
    """At the end of the function that forms the group, or of the one that calls it for that."""
    scope, at = call.scope, call
    for _ in range(3):
        sites = program.graph.sites.get(scope, [])
        if _does_more(program, scope, at) or len(sites) != 1 or sites[0].spawned:
            break
        scope, at = sites[0].call.scope, sites[0].call
    module, last = scope.module, scope.body[-1] if scope.body else None
    destroy = name_for(module, "torch.distributed.destroy_process_group")
    exists = name_for(module, "torch.distributed.is_initialized")
    if last is None or program.guards.of(call.node, call.scope) or not alone(module, last):
        return ()
    # An object's other methods need the group after the one that forms it.
    if destroy is None or exists is None or scope.is_method:
        return ()
    if isinstance(last, ast.If) and "__name__" in ast.unparse(last.test):
        return ()
    lines = [f"{destroy}()"]
    if scope is not call.scope or not surely_before(module, call.node, last):
        lines = [f"if {exists}():", f"    {destroy}()"]
    if isinstance(last, ast.Return):
        return (lines_before(module, last, *lines),) if last.value is None else ()
    return (lines_after(module, last, *lines),)


def _does_more(program: Program, scope: Scope, at: Call) -> bool:
    """Whether a function goes on to train after it has formed the group."""
    return any(
        call.last in _TRAINS or (comes_after(call, at) and program.graph.called.get(call))
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
