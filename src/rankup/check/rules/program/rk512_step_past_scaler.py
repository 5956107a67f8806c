"""The gradients are scaled, and the optimizer steps without the gradient scaler."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.flow import between, same_block, same_turn
from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.module import Call, last_name, place, same
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sounds import FINITE, sounds
from rankup.check.facts.program.value import the_constant
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import alone, lines_after, replaced
from rankup.check.rules.queries import gets, is_of_scaler, match, steps_an_optimizer
from rankup.findings.finding import Confidence, Severity

_GRADIENTS = {"grad", "_amp_foreach_non_finite_check_and_unscale_"}


def find(program: Program) -> Iterator[Match]:
    if program.gets(Does.SCALER, Does.GRADIENTS):
        return
    scaled = [(call, scale) for call in program.methods("backward") if (scale := _scale_of(program, call))]
    by_scaler = [call for call in program.methods("step") if is_of_scaler(program, call)]
    if not scaled or (not by_scaler and _unscales_itself(program, [call for call, _ in scaled])):
        return
    for backward, scale in scaled:
        step = _next_step(program, backward)
        if step is None or scale.base is None or _touched(backward, step):
            continue
        if by_scaler and not _straight(backward, step, by_scaler):
            continue  # the scaler steps somewhere: in another branch, for this optimizer, perhaps
        if not by_scaler and _handed_on(program, scale.base):
            continue
        scaler = ast.unparse(scale.base)
        said = f"multiplied by {scaler}.scale() at {scale.module.line(scale.node.lineno)}"
        if program.methods("unscale_"):
            said = f"scaled, and only {scaler}.step() leaves out those with inf"
        yield match(
            step.module,
            step.node,
            f"{step.text}() is called in place of {scaler}.step(): its gradients are {said}.",
            *_edit(scale, step),
            confidence=Confidence.SURE if _known(program, scale, step) else Confidence.LIKELY,
        )


def _scale_of(program: Program, backward: Call) -> Call | None:
    """``scaler.scale(loss)`` of ``scaler.scale(loss).backward()``, or of a variable that holds it."""
    direct = program.values.call(backward.base) if backward.base is not None else None
    scales = [direct] if direct is not None else program.made(backward.base, backward.scope)
    if scales and all(call.last == "scale" and is_of_scaler(program, call) for call in scales):
        return scales[0]
    return None


def _next_step(program: Program, backward: Call) -> Call | None:
    """The first step of an optimizer after a backward pass that runs in the same turn of the loop."""
    after = [
        call
        for call in backward.scope.calls
        if call.last == "step" and same_turn(backward, call) and steps_an_optimizer(program, call)
    ]
    return min(after, key=lambda call: place(call.node), default=None)


def _unscales_itself(program: Program, scaled: list[Call]) -> bool:
    """Whether gradients are divided by hand: in a program whose scaler never steps, it may be anywhere."""
    nodes = (node for module in program.modules for node in ast.walk(module.tree))
    asked = (
        getattr(node, "attr", "") or getattr(node, "id", "") or getattr(node, "arg", "") for node in nodes
    )
    if any(isinstance(name, str) and sounds(name, FINITE) for name in asked):
        return True  # it may leave out a step with inf
    if any("unscale" in call.last and call.last != "unscale_" for call in program.calls):
        return True
    return any(last_name(node) in _GRADIENTS for call in scaled for node in ast.walk(call.scope.node))


def _touched(backward: Call, step: Call) -> bool:
    """Whether the gradients are changed between the two."""
    nodes = [node for node in ast.walk(step.scope.node) if isinstance(node, ast.Attribute)]
    inside = [node for node in nodes if place(backward.node) < place(node) < place(step.node)]
    return any(node.attr in _GRADIENTS for node in inside)


def _straight(backward: Call, step: Call, by_scaler: list[Call]) -> bool:
    """Whether one follows the other in the same block, and the scaler never steps this optimizer."""
    if not same_block(backward, step):
        return False
    others = {"backward", "unscale_", "get_scale"}
    if any(call.last in others or call in by_scaler for call in between(backward, step)):
        return False
    return not any(same(call.argument("optimizer", 0), step.base) for call in by_scaler)


def _handed_on(program: Program, scaler: ast.expr) -> bool:
    """Whether the scaler is given to something unknown, which may step with it."""
    return any(gets(call, scaler) and not program.graph.called.get(call) for call in program.calls)


def _known(program: Program, scale: Call, step: Call) -> bool:
    """Whether both objects are seen to be made, and nothing turns the scaler off."""
    scalers = program.made(scale.base, scale.scope)
    on = [
        call.argument("enabled") is None or the_constant(program.value(call, "enabled")) is True
        for call in scalers
    ]
    hidden = any(call.spread for call in scalers)
    return bool(scalers) and all(on) and not hidden and bool(program.made(step.base, step.scope))


def _edit(scale: Call, step: Call) -> tuple[Edit, ...]:
    module, statement = step.module, step.module.statement(step.node)
    if (
        scale.base is None
        or step.base is None
        or scale.scope is not step.scope
        or not alone(module, statement)
    ):
        return ()
    scaler = ast.unparse(scale.base)
    edits = [replaced(module, step.node, f"{scaler}.step({ast.unparse(step.base)})")]
    if not any(call.last == "update" and same(call.base, scale.base) for call in step.scope.calls):
        edits.append(lines_after(module, statement, f"{scaler}.update()"))
    return tuple(edits)


_HEAD = """import torch

model = torch.nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x in torch.randn(100, 8, 4).cuda():
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.float16):
        loss = model(x).sum()
"""

RULE = Rule(
    code="RK512",
    name="step-past-scaler",
    severity=Severity.ERROR,
    confidence=Confidence.LIKELY,
    what="The loss is scaled by a gradient scaler, and the optimizer steps without it.",
    why="The gradients are still multiplied by the scale, 65536 at first. SGD diverges, and Adam trains with another "
    "clipping and another eps. After unscale_() the first inf makes all weights nan: only scaler.step() leaves such a "
    "step out. There is no message, but for an error of scaler.update() if unscale_() was not called either.",
    fix="Call scaler.step(optimizer) and scaler.update() in place of optimizer.step().",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        _HEAD
        + """    scaler.scale(loss).backward()
    optimizer.step()
    scaler.update()
""",
        """import torch

def train(model, loader):
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        scaler.scale(model(x).sum()).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scaler.update()
        optimizer.zero_grad()
""",
    ),
    silent=(
        _HEAD.replace('"cuda")\nfor', '"cuda", enabled=False)\nfor')
        + """    scaler.scale(loss).backward()
    optimizer.step()
""",
        """import steps
import torch

def train(model, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        scaler.scale(model(x).sum()).backward()
        steps.unscaled(scaler, optimizer)
        optimizer.step()
""",
    ),
)
