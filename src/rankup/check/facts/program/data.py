"""Data loaders, their samplers, and the loops that train and evaluate with them."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property

from rankup.check.facts.program.code import ProgramCode
from rankup.check.facts.program.module import Call, Module, Scope, last_name
from rankup.check.facts.program.reaching import reaching
from rankup.check.facts.program.sounds import EVALUATION, TRAINING, may_step_name
from rankup.check.facts.program.value import Kind, Value, constants, kinds, objects, part_of

LoopNode = ast.For | ast.AsyncFor | ast.While
_BACKWARD = {"backward", "manual_backward", "train_batch", "training_step"}


@dataclass(eq=False, repr=False)
class Loop:
    """A ``for`` over a data loader, or around one."""

    node: LoopNode
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
    hidden: bool = False  # whether a sampler may be in ``*args`` or ``**kwargs``
    loops: list[Loop] = field(default_factory=list)

    @cached_property
    def trains(self) -> bool:
        if any(loop.trains for loop in self.loops):
            return True
        return not self.loops and any(TRAINING.search(name) for name in self.names[:2]) and not self.evaluates

    @cached_property
    def evaluates(self) -> bool:
        """Whether it is for evaluation alone."""
        if any(loop.trains for loop in self.loops):
            return False
        if any(loop.evaluates for loop in self.loops):
            return True
        return any(EVALUATION.search(name.replace("_", " ")) for name in self.names[:1])


@dataclass(eq=False, repr=False)
class Data:
    loaders: list[Loader]
    loops: list[Loop]
    samplers: list[Call]  # DistributedSampler(...)

    def loader_of(self, call: Call) -> Loader | None:
        return next((loader for loader in self.loaders if loader.call is call), None)


def read_data(program: ProgramCode) -> Data:
    reader = _Reader(program)
    loaders = [reader.loader(call) for call in reader.calls]
    loops = reader.loops()
    for loop in loops:
        for loader in loaders:
            if loader.call in loop.loaders:
                loader.loops.append(loop)
    return Data(loaders, loops, program.named("DistributedSampler"))


class _Reader:
    def __init__(self, program: ProgramCode) -> None:
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
        hidden = call.spread and not self._without_sampler(call)
        return Loader(call, objects(value), bool(given) and not only_none, self._names(call), hidden)

    def _without_sampler(self, call: Call) -> bool:
        """Whether all that ``**kwargs`` passes is known, and no sampler is in it."""
        if any(isinstance(argument, ast.Starred) for argument in call.node.args):
            return False
        keys = [self._keys(k.value, call.scope) for k in call.node.keywords if k.arg is None]
        return all(one is not None and not one & {"sampler", "batch_sampler"} for one in keys)

    def _keys(self, node: ast.AST | None, scope: Scope) -> set[str] | None:
        """The keys of a dictionary; None if it may have others."""
        if isinstance(node, ast.Dict):
            if all(isinstance(key, ast.Constant) for key in node.keys):
                return {str(key.value) for key in node.keys if isinstance(key, ast.Constant)}
        elif isinstance(node, ast.Call) and last_name(node) == "dict" and not node.args:
            return {k.arg for k in node.keywords if k.arg} if all(k.arg for k in node.keywords) else None
        elif isinstance(node, ast.Name):
            return self._keys_of_name(node, scope)
        return None

    def _keys_of_name(self, node: ast.Name, scope: Scope) -> set[str] | None:
        arguments = getattr(scope.node, "args", None)
        if arguments is not None and arguments.kwarg is not None and arguments.kwarg.arg == node.id:
            sites = self.program.graph.sites.get(scope, ())
            known = bool(sites) and not any(site.unknown or site.call.spread for site in sites)
            return {key for site in sites for key in site.keywords} if known else None
        found: list[set[str] | None] = [
            self._keys(definition.value, scope) for definition in scope.definitions.get(node.id, ())
        ]
        for call in scope.calls:
            if last_name(call.base or call.node) == node.id and call.last == "update":
                found += [self._keys(argument, scope) for argument in call.node.args]
                found.append(call.keywords)
            elif call.last != "update" and any(
                isinstance(argument, ast.Name) and argument.id == node.id for argument in call.node.args
            ):
                return None  # it may be changed there
        for assign in scope.module.of(ast.Assign):
            for target in assign.targets:
                if isinstance(target, ast.Subscript) and last_name(target.value) == node.id:
                    found.append({last_name(target)})
        known_keys = [keys for keys in found if keys is not None]
        return set().union(*known_keys) if found and len(known_keys) == len(found) else None

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
            nodes: list[LoopNode] = [
                *module.of(ast.For),
                *module.of(ast.AsyncFor),
                *module.of(ast.While),
            ]
            found |= {node: Loop(node, module.scope_of(node)) for node in nodes}
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
            reached, _ = reaching(list(scope.definitions.get(node.id, ())), node, scope.module)
            for definition in reached[:4]:
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
                last_name(item.context_expr) in {"no_grad", "inference_mode"} for item in holder.items
            ):
                return True
        if any(
            last_name(d) in {"no_grad", "inference_mode"} for d in getattr(scope.node, "decorator_list", ())
        ):
            return True
        if any(call.last in {"no_grad", "inference_mode"} for call in loop.calls):
            return True
        return any(call.last == "eval" and isinstance(call.node.func, ast.Attribute) for call in scope.calls)


def _is_training(call: Call) -> bool:
    if call.last in _BACKWARD:
        return True
    if call.last == "step" and call.base is not None:
        return may_step_name(last_name(call.base))
    return any(isinstance(a, ast.Name) and "optim" in a.id for a in call.node.args) and "scal" in call.last
