"""What several rules ask of a program: optimizers, scalers, samplers, files, devices, and what goes into a value."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from rankup.check.facts.program.data import Loader, Loop
from rankup.check.facts.program.module import Call, Module, Scope, last_name, same
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import parts
from rankup.check.facts.program.snapshots import to_file
from rankup.check.facts.program.sounds import is_optimizer_name, sounds
from rankup.check.facts.program.value import Kind, depends_on, kinds, the_constant
from rankup.check.rule import Edit, Match
from rankup.findings.finding import Confidence, Severity

_OPTIMIZERS = ("torch.optim.", "apex.optimizers.", "bitsandbytes.optim.")
_BESIDE = (".lr_scheduler.", ".swa_utils.")


def match(
    module: Module,
    node: ast.AST,
    message: str,
    *edits: Edit,
    severity: Severity | None = None,
    confidence: Confidence | None = None,
    why: str | None = None,
    fix: str | None = None,
) -> Match:
    """A finding at a node; what is None is the rule's own."""
    return Match(
        module.document,
        module.span(node),
        message,
        edits,
        severity=severity,
        confidence=confidence,
        why=why,
        fix=fix,
    )


# -- optimizers and gradient scalers


def makes_optimizer(call: Call) -> bool:
    """Whether a call makes an optimizer; schedules and averages of weights, which live beside them, are none."""
    name = call.name
    return (
        name.startswith(_OPTIMIZERS) and call.last[:1].isupper() and not any(part in name for part in _BESIDE)
    )


def is_optimizer(program: Program, node: ast.AST | None, scope: Scope) -> bool:
    """Whether a value is certainly an optimizer: each call that may have made it makes one."""
    made = program.made(node, scope)
    return bool(made) and all(map(makes_optimizer, made))


def steps_an_optimizer(program: Program, step: Call) -> bool:
    """Whether ``x.step()`` is a plain step of an optimizer: a closure, a schedule and a profiler are not."""
    if step.base is None or step.given or program.graph.called.get(step):
        return False
    if program.made(step.base, step.scope):
        return is_optimizer(program, step.base, step.scope)
    unknown = kinds(program.values.of(step.base, step.scope)) <= {Kind.UNKNOWN}
    return unknown and is_optimizer_name(ast.unparse(step.base))


def stepped_by(call: Call) -> ast.expr | None:
    """The optimizer of ``optimizer.step()`` and of ``scaler.step(optimizer)``."""
    return call.argument("optimizer", 0) if call.given else call.base


def is_of_scaler(program: Program, call: Call) -> bool:
    """Whether a call is of a gradient scaler that is not switched off; by its name, if nothing else is known."""
    if call.base is None:
        return False
    made = program.made(call.base, call.scope)
    if made:
        return all(
            one.name.endswith("GradScaler") and the_constant(program.value(one, "enabled")) is not False
            for one in made
        )
    return sounds(call.base, ("scaler",)) and not program.graph.called.get(call)


# -- data


def dividing(program: Program, loader: Loader) -> list[Call]:
    """The DistributedSamplers of a loader, if it has no other samplers."""
    ours = [sampler for sampler in loader.samplers if sampler in program.data.samplers]
    return ours if len(ours) == len(loader.samplers) else []


def evaluating(program: Program) -> list[Loader]:
    """The loaders that are for evaluation alone."""
    return [loader for loader in program.data.loaders if loader.evaluates and not loader.trains]


def handed_over(program: Program, loader: Loader) -> bool:
    """Whether a framework gets a loader: ``accelerator.prepare(…, loader)``, ``trainer.fit(model, loader)``."""
    if "dataloader" in loader.call.scope.name:
        return True  # train_dataloader()
    return any(
        loader.call in program.made(one, call.scope)
        for call in program.methods("prepare", "prepare_data_loader", "setup_dataloaders", "fit", "Trainer")
        for one in call.given
    )


# -- files


def loads(program: Program) -> list[Call]:
    return program.named("torch.load")


def saves(program: Program) -> list[tuple[Call, ast.expr]]:
    """Each ``torch.save`` into a file, with the path."""
    found = [(call, call.argument("f", 1)) for call in program.named("torch.save")]
    return [(call, path) for call, path in found if path is not None and to_file(program, call)]


# -- devices


@dataclass(frozen=True)
class Choice:
    """A place that chooses a device by a number."""

    module: Module
    scope: Scope
    node: ast.expr
    number: ast.expr
    by: str


def device_choices(program: Program) -> Iterator[Choice]:
    for call in program.named("torch.cuda.set_device", "torch.xpu.set_device"):
        yield from _choice(call, call.argument("device", 0), f"{call.text}()")
    for call in program.named("torch.device"):
        yield from _choice(call, call.argument("index", 1) or call.argument("type", 0), "torch.device()")
    for call in program.named("DistributedDataParallel"):
        given = call.argument("device_ids", 1)
        if isinstance(given, ast.List) and len(given.elts) == 1:
            yield from _choice(call, given.elts[0], "device_ids of DistributedDataParallel")
    for module in program.modules:
        for node in module.of(ast.JoinedStr):
            if len(node.values) == 2:
                start, number = node.values
                named = isinstance(start, ast.Constant) and start.value in {"cuda:", "xpu:"}
                if named and isinstance(number, ast.FormattedValue):
                    yield Choice(module, module.scope_of(node), node, number.value, "The device's name")


def moves(program: Program) -> Iterator[Choice]:
    """``x.to(rank)`` and ``x.cuda(rank)``."""
    for call in program.methods("to", "cuda"):
        if call.base is not None and not call.name:
            yield from _choice(call, call.argument("device", 0), f".{call.last}()")


def _choice(call: Call, number: ast.expr | None, by: str) -> Iterator[Choice]:
    if number is not None:
        yield Choice(call.module, call.scope, number, number, by)


# -- values


def goes_in(
    program: Program,
    node: ast.AST,
    scope: Scope,
    wanted: Collection[Kind],
    like: Iterable[str] = (),
    depth: int = 5,
) -> bool:
    """Whether a value of these kinds goes into an expression, in any way, or anything that sounds like it."""
    return any(
        isinstance(inner, ast.expr)
        and (depends_on(program.values.of(inner, inside), *wanted) or _is_called(inner, like))
        for inner, inside in parts(program, node, scope, depth)
    )


def _is_called(node: ast.expr, like: Iterable[str]) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and sounds(last_name(node), like)


def lengths_in(node: ast.AST) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Each ``len(x)`` in an expression, with the ``x``."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "len":
            yield from ((part, one) for one in part.args)


def whole_lengths(loader: Loader, loop: Loop) -> Iterator[tuple[ast.BinOp, str]]:
    """Where the function of a loop divides by the length of all the data: ``right / len(loader.dataset)``."""
    data, scope = loader.call.argument("dataset", 0), loop.scope
    one_class = (
        scope.parent is not None and scope.parent.is_class and scope.parent is loader.call.scope.parent
    )
    for node, of in divided_by_length(scope):
        by_loader = isinstance(of, ast.Attribute) and of.attr == "dataset"
        if by_loader or (same(of, data) and (isinstance(of, ast.Name) or one_class)):
            yield node, ast.unparse(node.right)


def divided_by_length(scope: Scope) -> Iterator[tuple[ast.BinOp, ast.expr]]:
    """Where a function divides by a length, and the length of what: ``right / len(data)``."""
    for node in scope.module.of(ast.BinOp):
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Div)
            and scope.module.scope_of(node) is scope
        ):
            yield from ((node, of) for whole, of in lengths_in(node.right) if node.right is whole)


def written(node: ast.expr | None, scope: Scope) -> ast.expr | None:
    """An expression, or the one that a local name certainly has the value of: to compare those of two functions."""
    found = scope.definitions.get(node.id, []) if isinstance(node, ast.Name) and scope.is_function else []
    return found[0].value if len(found) == 1 and not found[0].path and not found[0].item else node


def gets(call: Call, node: ast.AST) -> bool:
    """Whether an expression is an argument of a call, as it is."""
    return any(same(one, node) for one in call.given)
