"""Data loaders, their samplers, and the loops that train and evaluate with them."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from rankup.check.facts.program_module import Call, Module, Scope
from rankup.check.facts.program_value import Kind, Value, constants, kinds, objects, part_of, the_constant

if TYPE_CHECKING:
    from rankup.check.facts.program import Program

_EVALUATION = re.compile(r"(?<![a-z])(e?val(id|idation|uation)?|test(ing)?|dev|inference)(?![a-z])", re.I)
_TRAINING = re.compile(r"train", re.I)
_BACKWARD = {"backward", "manual_backward", "train_batch", "training_step"}


@dataclass(eq=False, repr=False)
class Loop:
    """A ``for`` over a data loader, or around one."""

    node: ast.For | ast.AsyncFor | ast.While
    scope: Scope
    calls: list[Call] = field(default_factory=list)  # in its body, those of inner loops as well
    loaders: list[Call] = field(default_factory=list)  # the DataLoader(...) calls that it can iterate
    trains: bool = False
    evaluates: bool = False


@dataclass(eq=False, repr=False)
class Loader:
    """A ``DataLoader(...)``."""

    call: Call
    samplers: list[Call]  # the calls that can have made its sampler
    sampled: bool  # whether a sampler or a batch sampler is given that is not always None
    names: tuple[str, ...]  # what it is assigned to, and the functions around it
    loops: list[Loop] = field(default_factory=list)

    @cached_property
    def trains(self) -> bool:
        if any(loop.trains for loop in self.loops):
            return True
        return (
            not self.loops and any(_TRAINING.search(name) for name in self.names[:2]) and not self.evaluates
        )

    @cached_property
    def evaluates(self) -> bool:
        """Whether it is for evaluation alone."""
        if any(loop.trains for loop in self.loops):
            return False
        if any(loop.evaluates for loop in self.loops):
            return True
        return any(_EVALUATION.search(name.replace("_", " ")) for name in self.names[:1])


@dataclass(eq=False, repr=False)
class Data:
    loaders: list[Loader]
    loops: list[Loop]
    samplers: list[Call]  # DistributedSampler(...)

    def loader_of(self, call: Call) -> Loader | None:
        return next((loader for loader in self.loaders if loader.call is call), None)


def read_data(program: Program) -> Data:
    reader = _Reader(program)
    loaders = [reader.loader(call) for call in reader.calls]
    loops = reader.loops()
    for loop in loops:
        for loader in loaders:
            if loader.call in loop.loaders:
                loader.loops.append(loop)
    return Data(loaders, loops, program.named("DistributedSampler"))


class _Reader:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.calls = [
            call for call in program.named("DataLoader") if call.name.startswith("torch.utils.data")
        ]
        self._made = {call.node: call for call in self.calls}

    def loader(self, call: Call) -> Loader:
        given = [(k, p) for k, p in (("sampler", 3), ("batch_sampler", 4)) if call.argument(k, p) is not None]
        value: Value = (
            frozenset().union(*(self.program.value(call, k, p) for k, p in given)) if given else frozenset()
        )
        only_none = bool(value) and kinds(value) == {Kind.CONSTANT} and set(constants(value)) <= {None}
        return Loader(call, objects(value), bool(given) and not only_none, self._names(call))

    def _names(self, call: Call) -> tuple[str, ...]:
        module = call.module
        statement = module.statement(call.node)
        found: list[str] = []
        if isinstance(statement, ast.Assign):
            found += [ast.unparse(target) for target in statement.targets[:1]]
        elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
            found.append(ast.unparse(statement.target))
        scope: Scope | None = call.scope
        while scope is not None:
            if scope.name:
                found.append(scope.name)
            scope = scope.parent
        return tuple(found)

    # -- loops

    def loops(self) -> list[Loop]:
        found: dict[ast.AST, Loop] = {}
        for module in self.program.modules:
            for node in module.of(ast.For, ast.AsyncFor, ast.While):
                if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
                    found[node] = Loop(node, module.scope_of(node))
            self._note_calls(module, found)
        for loop in found.values():
            if isinstance(loop.node, (ast.For, ast.AsyncFor)):
                loop.loaders = self.iterated(loop.node.iter, loop.scope)
            loop.trains = self.trains(loop.calls)
            loop.evaluates = not loop.trains and self._without_gradients(loop)
        return list(found.values())

    def _note_calls(self, module: Module, found: dict[ast.AST, Loop]) -> None:
        for call in module.calls:
            for holder, field_name in module.ancestors(call.node):
                if field_name == "body" and holder in found:
                    found[holder].calls.append(call)

    def iterated(self, node: ast.AST, scope: Scope, depth: int = 0) -> list[Call]:
        """The loaders that an expression goes through: ``enumerate(tqdm(loader))``."""
        found = [call for call in objects(self.program.values.of(node, scope)) if call.node in self._made]
        if found or depth > 3:
            return found
        if isinstance(node, ast.Call):
            inner = [*node.args, *(k.value for k in node.keywords)]
            for part in inner[:4]:
                found += self.iterated(part, scope, depth + 1)
        elif isinstance(node, ast.Name):
            for definition in scope.definitions.get(node.id, ())[:4]:
                if isinstance(definition.value, ast.Call) and not definition.item:
                    found += self._unpacked(definition.value, definition.path, scope, depth)
        return found

    def _unpacked(self, value: ast.Call, path: tuple[int, ...], scope: Scope, depth: int) -> list[Call]:
        """The loaders at one place of what a call returns: ``model, loader = accelerator.prepare(model, loader)``."""
        if not path:
            return self.iterated(value, scope, depth + 2)
        parts = part_of(self.program.values.of(value, scope), path)
        found = [call for call in objects(parts) if call.node in self._made]
        last = value.func.attr if isinstance(value.func, ast.Attribute) else ""
        if (
            not found
            and last.startswith(("prepare", "setup"))
            and len(path) == 1
            and path[0] < len(value.args)
        ):
            given = value.args[path[0]]
            return self.iterated(given, scope, depth + 2) if not isinstance(given, ast.Starred) else []
        return found

    def trains(self, calls: list[Call]) -> bool:
        seen: set[Scope] = set()
        for call in calls:
            if _is_training(call):
                return True
            for target in self.program.graph.called.get(call, ()):
                if target not in seen:
                    for scope in self.program.graph.reached(target, 3) - seen:
                        seen.add(scope)
                        if any(_is_training(inner) for inner in scope.calls):
                            return True
        return False

    def _without_gradients(self, loop: Loop) -> bool:
        module, scope = loop.scope.module, loop.scope
        for holder, _ in module.ancestors(loop.node):
            if isinstance(holder, ast.With) and any(
                _last(item.context_expr) in {"no_grad", "inference_mode"} for item in holder.items
            ):
                return True
        if any(_last(d) in {"no_grad", "inference_mode"} for d in getattr(scope.node, "decorator_list", ())):
            return True
        if any(call.last in {"no_grad", "inference_mode"} for call in loop.calls):
            return True
        return any(call.last == "eval" and isinstance(call.node.func, ast.Attribute) for call in scope.calls)


def _is_training(call: Call) -> bool:
    if call.last in _BACKWARD:
        return True
    if call.last == "step" and call.base is not None:
        name = _last(call.base).lower()
        return "opt" in name or "scaler" in name
    return any(isinstance(a, ast.Name) and "optim" in a.id for a in call.node.args) and "scal" in call.last


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return _last(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def repeats(loop: Loop, program: Program) -> bool:
    """Whether a loop runs more than once, as far as can be seen."""
    if isinstance(loop.node, ast.While):
        return True
    if isinstance(loop.node.iter, ast.Call) and _last(loop.node.iter) in {"range", "trange"}:
        numbers = [the_constant(program.values.of(a, loop.scope)) for a in loop.node.iter.args]
        if all(isinstance(number, int) for number in numbers):
            return len(range(*numbers[:3])) > 1
        options = [program.values.of(a, loop.scope) for a in loop.node.iter.args]
        return not any(constants(value) == [1] and len(options) == 1 for value in options)
    return False


def around(loop: Loop, program: Program) -> list[Loop]:
    """The loops inside which ``loop`` runs: around it, or around the calls of its function."""
    by_node = {other.node: other for other in program.data.loops}
    found = [
        by_node[holder]
        for holder, field_name in loop.scope.module.ancestors(loop.node)
        if field_name == "body" and holder in by_node
    ]
    for site in program.graph.sites.get(loop.scope, ()):
        if site.call.scope is not loop.scope:
            found += around_call(site.call, program, 1)
    return found


def around_call(call: Call, program: Program, depth: int = 0) -> list[Loop]:
    """The loops inside which a call runs."""
    found = [loop for loop in program.data.loops if call in loop.calls]
    if depth < 4:
        for site in program.graph.sites.get(call.scope, ()):
            if site.call.scope is not call.scope:
                found += around_call(site.call, program, depth + 1)
    return found
