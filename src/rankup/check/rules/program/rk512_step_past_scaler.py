"""The gradients are scaled, and the optimizer steps without the gradient scaler."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from rankup.check.facts.program.module import Call, place
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import Kind, objects, the_constant
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import alone, lines_after, replaced
from rankup.check.rules.queries import is_of_scaler, make_optimizers
from rankup.findings.finding import Confidence, Severity

# They shard or load data, and leave the optimizer alone.
_APART = frozenset({"fairscale", "webdataset", "ffcv", "dali", "streaming"})
_INF = re.compile(r"finite|isinf|isnan|found_inf|overflow|get_scale")


def find(program: Program) -> Iterator[Match]:
    if program.frameworks - _APART:
        return
    scaled = [call for call in program.methods("backward") if _scale_of(program, call)]
    if not scaled or _unscales_itself(program, scaled):
        return
    by_scaler = [call for call in program.methods("step") if is_of_scaler(program, call)]
    for backward in scaled:
        scale = _scale_of(program, backward)
        step = _next_step(program, backward)
        if scale is None or step is None or step.base is None or _touched(backward, step):
            continue
        if by_scaler and not _straight(backward, step, by_scaler):
            continue  # the scaler steps somewhere: in another branch, for this optimizer, perhaps
        if not by_scaler and _handed_on(program, scale):
            continue
        scaler = ast.unparse(scale.base or scale.node)
        said = f"multiplied by {scaler}.scale() at line {scale.node.lineno}"
        if program.methods("unscale_"):
            said = f"scaled, and only {scaler}.step() leaves out those with inf"
        yield Match(
            step.module.document,
            step.span,
            f"{ast.unparse(step.node.func)}() is called in place of {scaler}.step(): its gradients are {said}.",
            _edit(scale, step),
            confidence=Confidence.SURE if _known(program, scale, step) else Confidence.LIKELY,
        )


def _scale_of(program: Program, backward: Call) -> Call | None:
    """``scaler.scale(loss)`` of ``scaler.scale(loss).backward()``, or of a variable that holds it."""
    made = objects(program.values.of(backward.base, backward.scope)) if backward.base else []
    direct = program.values.call(backward.base) if isinstance(backward.base, ast.Call) else None
    scales = [direct] if direct is not None else made
    if scales and all(call.last == "scale" and is_of_scaler(program, call) for call in scales):
        return scales[0]
    return None


def _is_optimizer(program: Program, step: Call) -> bool:
    """Whether ``x.step()`` is a plain step of an optimizer: a closure, a schedule and a profiler are not."""
    if step.base is None or step.node.args or step.node.keywords or program.graph.called.get(step):
        return False
    value = program.values.of(step.base, step.scope)
    made = objects(value)
    if made:
        return make_optimizers(made)
    if any(atom.kind is not Kind.UNKNOWN for atom in value):
        return False
    name = ast.unparse(step.base).rpartition(".")[2].lower()
    return name == "opt" or (name.startswith("optim") and "sched" not in name)


def _next_step(program: Program, backward: Call) -> Call | None:
    """The first step of an optimizer after a backward pass that runs in the same turn of the loop."""
    after = [
        call
        for call in backward.scope.calls
        if call.last == "step"
        and place(call.node) > place(backward.node)
        and _is_optimizer(program, call)
        and not _either(backward, call)
        and _loop(call) in [None, *(holder for holder, _ in backward.module.ancestors(backward.node))]
    ]
    return min(after, key=lambda call: place(call.node), default=None)


def _loop(call: Call) -> ast.AST | None:
    for holder, _ in call.module.ancestors(call.node):
        if isinstance(holder, (ast.For, ast.AsyncFor, ast.While)):
            return holder
    return None


def _either(one: Call, other: Call) -> bool:
    """Whether two calls are in different branches of one condition."""
    branches: dict[ast.AST, str] = {
        holder: part
        for holder, part in one.module.ancestors(one.node)
        if isinstance(holder, (ast.If, ast.IfExp, ast.Try, ast.Match))
    }
    return any(branches.get(holder, part) != part for holder, part in other.module.ancestors(other.node))


def _unscales_itself(program: Program, scaled: list[Call]) -> bool:
    """Whether gradients are divided by hand: in a program whose scaler never steps, it may be anywhere."""
    if any(is_of_scaler(program, call) for call in program.methods("step")):
        return False
    if any(_asks_for_inf(node) for module in program.modules for node in ast.walk(module.tree)):
        return True
    if any("unscale" in call.last and call.last != "unscale_" for call in program.calls):
        return True
    return any(_touches(node) for call in scaled for node in ast.walk(call.scope.node))


def _asks_for_inf(node: ast.AST) -> bool:
    """Whether a program may leave out a step with inf by itself."""
    name = getattr(node, "attr", "") or getattr(node, "id", "") or getattr(node, "arg", "")
    return isinstance(name, str) and bool(_INF.search(name))


def _touched(backward: Call, step: Call) -> bool:
    """Whether the gradients are changed between the two."""
    first, last = place(backward.node), place(step.node)
    nodes = [node for node in ast.walk(step.scope.node) if isinstance(node, ast.expr)]
    return any(first < place(node) < last and _touches(node) for node in nodes)


def _touches(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in {
        "grad",
        "_amp_foreach_non_finite_check_and_unscale_",
    }


def _straight(backward: Call, step: Call, by_scaler: list[Call]) -> bool:
    """Whether one follows the other in the same block, and the scaler never steps this optimizer."""
    module = step.module
    statements = module.statement(backward.node), module.statement(step.node)
    if module.parents.get(statements[0]) != module.parents.get(statements[1]):
        return False
    between = [
        call
        for call in step.scope.calls
        if place(backward.node) < place(call.node) < place(step.node)
        and (call.last in {"backward", "unscale_", "get_scale"} or call in by_scaler)
        and call.node is not backward.node
    ]
    text = ast.unparse(step.base or step.node)
    stepped = [call.argument("optimizer", 0) for call in by_scaler]
    return not between and all(given is None or ast.unparse(given) != text for given in stepped)


def _handed_on(program: Program, scale: Call) -> bool:
    """Whether the scaler is given to something unknown, which may step with it."""
    text = ast.unparse(scale.base or scale.node)
    for call in program.calls:
        given = [*call.node.args, *(keyword.value for keyword in call.node.keywords)]
        if any(ast.unparse(one) == text for one in given) and not program.graph.called.get(call):
            return True
    return False


def _known(program: Program, scale: Call, step: Call) -> bool:
    """Whether both objects are seen to be made, and nothing turns the scaler off."""
    scalers = objects(program.values.of(scale.base, scale.scope))
    return (
        bool(scalers)
        and bool(objects(program.values.of(step.base, step.scope)))
        and all(
            call.argument("enabled") is None or the_constant(program.value(call, "enabled")) is True
            for call in scalers
        )
        and not any(call.spread for call in scalers)
    )


def _edit(scale: Call, step: Call) -> tuple[Edit, ...]:
    module, scaler = step.module, ast.unparse(scale.base or scale.node)
    statement = module.statement(step.node)
    if scale.module is not module or scale.scope is not step.scope or not alone(module, statement):
        return ()
    edits = [replaced(module, step.node, f"{scaler}.step({ast.unparse(step.base or step.node)})")]
    updates = [call for call in step.scope.calls if call.last == "update" and call.base is not None]
    if not any(ast.unparse(call.base or call.node) == scaler for call in updates):
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
