"""Local rank 0 of every node writes the same file. A warning if a script starts it on several nodes, else a note."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.guards import Guard
from rankup.check.facts.program.module import Call, Scope, identifiers
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import expressions
from rankup.check.facts.program.snapshots import to_file
from rankup.check.facts.program.value import Kind, depends_on
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_LOCAL = ("tmp", "local", "scratch", "node", "rank", "host", "ssd", "nvme")


def find(program: Program) -> Iterator[Match]:
    if program.frameworks or not program.inits or program.one_node or program.spawns or program.started:
        return
    if program.starts and not program.many_ranks:
        return
    for call in program.named("torch.save"):
        guards = program.guards.everywhere(call.node, call.scope)
        local = [guard for guard in guards if _is_local(guard)]
        path = call.argument("f", 1)
        if not local or path is None or any(guard.test.of is not Kind.LOCAL_RANK for guard in guards):
            continue
        if not to_file(program, call) or _differs(program, path, call.scope):
            continue
        yield _match(program, call, path, local[0])


def _match(program: Program, call: Call, path: ast.expr, guard: Guard) -> Match:
    return Match(
        call.module.document,
        call.span,
        f"{ast.unparse(path)} is written by local rank 0 of every node "
        f"(condition at line {getattr(guard.at, 'lineno', 0)}).",
        severity=Severity.WARNING if program.many_nodes else Severity.NOTE,
        confidence=Confidence.SURE if program.many_nodes else Confidence.LIKELY,
    )


def _is_local(guard: Guard) -> bool:
    return guard.test.of is Kind.LOCAL_RANK and guard.test.first and guard.test.sure


def _differs(program: Program, path: ast.expr, scope: Scope) -> bool:
    for part, inside in expressions(program, path, scope):
        if any(word in name.lower() for name in identifiers(part) for word in _LOCAL):
            return True
        for node in ast.walk(part):
            if isinstance(node, ast.Constant) and str(node.value).startswith(("/tmp", "/local", "/dev/shm")):
                return True
            if isinstance(node, ast.expr) and depends_on(
                program.values.of(node, inside), Kind.RANK, Kind.NODE_RANK
            ):
                return True
    return False


RULE = Rule(
    code="RK406",
    name="save-on-each-node",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="A file is saved by the processes with local rank 0, of which every node has one.",
    why="On several nodes several processes write the same file of a shared file system at the same time.",
    fix="Ask for the global rank: if dist.get_rank() == 0.",
    find=find,
    fires=(
        """import os
import torch
import torch.distributed as dist

def main(model):
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    if local_rank == 0:
        torch.save(model.state_dict(), "model.pt")
""",
        """import os
import torch
import torch.distributed as dist

class Trainer:
    def __init__(self, model):
        self.model = model
        self.local_rank = int(os.environ["LOCAL_RANK"])

    def save(self):
        torch.save(self.model.state_dict(), "snapshot.pt")

    def train(self):
        for epoch in range(10):
            if self.local_rank == 0 and epoch % 2 == 0:
                self.save()

dist.init_process_group("nccl")
Trainer(None).train()
""",
    ),
    silent=(
        """import os
import torch
import torch.distributed as dist

def main(model):
    dist.init_process_group("nccl")
    if int(os.environ["RANK"]) == 0:
        torch.save(model.state_dict(), "model.pt")
""",
        """import os
import torch
import torch.distributed as dist

def main(model):
    dist.init_process_group("nccl")
    if int(os.environ["LOCAL_RANK"]) == 0:
        torch.save(model.state_dict(), f"model-{os.environ['SLURM_NODEID']}.pt")
""",
    ),
)
