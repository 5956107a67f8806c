"""torch.cuda.amp instead of torch.amp."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.program import Program
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    found = program.named("torch.cuda.amp.GradScaler", "torch.cuda.amp.autocast")
    for call in {call.module.document.path: call for call in reversed(found)}.values():  # once for each file
        message = f'torch.cuda.amp is deprecated; it is torch.amp.{call.last}("cuda") now.'
        yield match(call.module, call.node, message)


RULE = Rule(
    code="RK506",
    name="deprecated-amp",
    severity=Severity.NOTE,
    confidence=Confidence.SURE,
    what="Mixed precision is taken from torch.cuda.amp.",
    why="Since PyTorch 2.4 it prints a FutureWarning on each rank, and it will be removed.",
    fix='Use torch.amp.GradScaler("cuda") and torch.amp.autocast("cuda").',
    find=find,
    fires=(
        """import torch

scaler = torch.cuda.amp.GradScaler()
""",
        """from torch.cuda.amp import autocast

def step(model, x):
    with autocast():
        return model(x)
""",
    ),
    silent=(
        """import torch

scaler = torch.amp.GradScaler("cuda")
""",
        """import torch

def step(model, x):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return model(x)
""",
    ),
)
