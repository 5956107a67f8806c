"""Gradients are clipped while they are still scaled."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.flow import comes_after, same_block
from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.module import Call
from rankup.check.facts.program.program import Program
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import alone, lines_before, removed
from rankup.check.rules.queries import is_of_scaler, match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if program.gets(Does.SCALER):
        return
    for clip in program.methods(
        "clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_grads_with_norm_"
    ):
        calls = clip.scope.calls
        of_scaler = [call for call in calls if call.last in {"step", "scale"} and is_of_scaler(program, call)]
        steps = [call for call in of_scaler if call.last == "step" and comes_after(call, clip)]
        scales = [call for call in of_scaler if call.last == "scale" and comes_after(clip, call)]
        unscales = [call for call in calls if call.last.startswith("unscale")]
        late = all(call.last == "unscale_" and comes_after(call, clip) for call in unscales)
        if steps and scales and late:
            yield match(
                clip.module,
                clip.node,
                f"{clip.last}() is called before {ast.unparse(steps[0].base or steps[0].node)}.unscale_(): it clips "
                "gradients that are still multiplied by the loss scale.",
                *_edit(clip, steps[0], unscales),
                confidence=Confidence.SURE if program.made(steps[0].base, clip.scope) else Confidence.LIKELY,
            )


def _edit(clip: Call, step: Call, unscales: list[Call]) -> tuple[Edit, ...]:
    module, statement = clip.module, clip.module.statement(clip.node)
    late = [module.statement(call.node) for call in unscales]  # those that come too late
    if not step.node.args or step.base is None or not all(alone(module, one) for one in (statement, *late)):
        return ()
    if not all(same_block(call, clip) for call in unscales):
        return ()
    line = f"{ast.unparse(step.base)}.unscale_({ast.unparse(step.node.args[0])})"
    return (lines_before(module, statement, line), *(removed(module, one) for one in late))


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
