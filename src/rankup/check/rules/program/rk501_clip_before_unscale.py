"""Gradients are clipped while they are still scaled."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.module import Call, place
from rankup.check.facts.program.program import Program
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import alone, lines_before, removed
from rankup.check.rules.queries import is_of_scaler
from rankup.findings.finding import Confidence, Severity

_CLIPS = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_grads_with_norm_")


def find(program: Program) -> Iterator[Match]:
    if (
        "accelerate" in program.frameworks
        or "lightning" in program.frameworks
        or "fabric" in program.frameworks
    ):
        return
    for clip in program.methods(*_CLIPS):
        scope = clip.scope
        steps = [call for call in scope.calls if call.last == "step" and is_of_scaler(program, call)]
        scales = [call for call in scope.calls if call.last == "scale" and is_of_scaler(program, call)]
        after = [call for call in steps if place(call.node) > place(clip.node)]
        if not after or not any(place(call.node) < place(clip.node) for call in scales):
            continue
        unscales = [call for call in scope.calls if call.last == "unscale_"]
        if any(place(call.node) < place(clip.node) for call in unscales):
            continue
        if any(call.last.startswith("unscale") and call not in unscales for call in scope.calls):
            continue
        yield Match(
            clip.module.document,
            clip.span,
            f"{clip.last}() is called before {ast.unparse(after[0].base or after[0].node)}.unscale_(): "
            "it clips gradients that are still multiplied by the loss scale.",
            _edit(clip, after[0], unscales),
        )


def _edit(clip: Call, step: Call, unscales: list[Call]) -> tuple[Edit, ...]:
    module = clip.module
    statement = module.statement(clip.node)
    if not step.node.args or step.base is None or not alone(module, statement):
        return ()
    line = f"{ast.unparse(step.base)}.unscale_({ast.unparse(step.node.args[0])})"
    edits = [lines_before(module, statement, line)]
    for other in unscales:  # one that comes too late
        late = module.statement(other.node)
        if not alone(module, late) or module.parents.get(late) != module.parents.get(statement):
            return ()
        edits.append(removed(module, late))
    return tuple(edits)


RULE = Rule(
    code="RK501",
    name="clip-before-unscale",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="Gradients are clipped before the gradient scaler has unscaled them.",
    why="The scaler multiplies the loss by up to 65536. A norm of 1.0 is then a norm of 0.00002: training hardly "
    "moves, without a message (PL#9330).",
    fix="Call scaler.unscale_(optimizer) between backward() and clip_grad_norm_().",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """import torch

scaler = torch.cuda.amp.GradScaler()

def step(model, optimizer, loss):
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
""",
        """import torch
from torch.nn.utils import clip_grad_norm_

def train(model, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        with torch.autocast("cuda"):
            loss = model(x).sum()
        scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
""",
    ),
    silent=(
        """import torch

scaler = torch.cuda.amp.GradScaler()

def step(model, optimizer, loss):
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
""",
        """import torch

def step(model, optimizer, loss):
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
""",
    ),
)
