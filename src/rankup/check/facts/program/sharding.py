"""What is known of a data set: whether ranks hold parts of it, whether it is random, whether seeds are set."""

from __future__ import annotations

import ast

from rankup.check.facts.program.code import ProgramCode
from rankup.check.facts.program.module import Call, Scope, identifiers
from rankup.check.facts.program.names import words
from rankup.check.facts.program.value import RANKS, Kind, depends_on, objects

_RANKS = (*RANKS, Kind.WORLD_SIZE)
_RANDOM = frozenset(
    words(
        "rand randn randint randperm normal random uniform FakeData make_blobs rand_like randn_like standard_normal"
    )
)
#: Random, but the same on all ranks.
_SEEDED = {"FakeData", "make_blobs"}
_SHARDS = frozenset(
    words("split_dataset_by_node shard split_by_node split_by_rank distributed_shard WebDataset")
)
SEEDS = words(
    "manual_seed seed set_seed seed_everything seed_all set_random_seed manual_seed_all fix_seed setup_seed"
)
SEEDS += words("set_seeds init_seeds set_all_seeds seed_torch enable_full_determinism fix_random_seeds")


def expressions(
    program: ProgramCode, node: ast.AST, scope: Scope, depth: int = 5
) -> list[tuple[ast.AST, Scope]]:
    """An expression with those that its names were assigned from, through functions' returns and constructors."""
    found: list[tuple[ast.AST, Scope]] = []
    seen: set[ast.AST] = set()
    waiting: list[tuple[ast.AST, Scope, int]] = [(node, scope, depth)]
    while waiting and len(found) < 200:
        at, inside, left = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        found.append((at, inside))
        for part in ast.walk(at):
            if left and isinstance(part, ast.Name):
                waiting += [(value, where, left - 1) for value, where in _assigned(program, part.id, inside)]
            elif left and isinstance(part, ast.Call):
                call = program.values.call(part)
                for target in program.graph.called.get(call, ()) if call is not None else ():
                    waiting += [(value, target, left - 1) for value in target.returns]
                    if target.name == "__init__":
                        waiting += [(s, target, left - 1) for s in target.body]
    return found


def _assigned(program: ProgramCode, name: str, scope: Scope) -> list[tuple[ast.expr, Scope]]:
    at: Scope | None = scope
    while at is not None:
        if name in at.definitions:
            return [(d.value, at) for d in at.definitions[name] if d.value is not None][:6]
        if name in at.all_parameters:
            given = [(site.argument(name), site.call.scope) for site in program.graph.sites.get(at, [])[:6]]
            return [(value, where) for value, where in given if value is not None]
        at = at.parent
    return []


def is_sharded(program: ProgramCode, node: ast.AST, scope: Scope) -> bool:
    """Whether a data set depends on the rank, or is cut into parts by something."""
    for part, inside in expressions(program, node, scope):
        for inner in ast.walk(part):
            if isinstance(inner, ast.Call):
                called = inner.func
                name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                if name in _SHARDS:
                    return True
            if isinstance(inner, (ast.Name, ast.Attribute)):
                last = inner.attr if isinstance(inner, ast.Attribute) else inner.id
                if "rank" in last.lower() or "world" in last.lower() or "shard" in last.lower():
                    return True
            if isinstance(inner, ast.Call) and depends_on(program.values.of(inner, inside), *_RANKS):
                return True
    return False


def strided_part(program: ProgramCode, node: ast.expr | None, scope: Scope) -> str:
    """The step of ``range(rank, len(dataset), world_size)`` in a data set: some ranks get one sample more."""
    for part, _ in expressions(program, node, scope, depth=2) if node is not None else ():
        for inner in ast.walk(part):
            call = program.values.call(inner)
            if call is not None and call.last == "range" and len(call.node.args) == 3:
                start, _, step = (program.values.of(one, call.scope) for one in call.node.args)
                if depends_on(start, Kind.RANK) and depends_on(step, Kind.WORLD_SIZE):
                    return ast.unparse(call.node.args[2])
    return ""


def is_iterable(program: ProgramCode, node: ast.AST, scope: Scope) -> bool:
    """Whether a data set is, or may be, a stream without a length."""
    for made in objects(program.values.of(node, scope)):
        if made.name.startswith(("webdataset", "datasets.", "torchdata", "litdata")):
            return True
    for part, inside in expressions(program, node, scope):
        for inner in ast.walk(part):
            if isinstance(inner, ast.Call):
                for holder in program.graph.functions(inner.func, inside):
                    names = {ast.unparse(base) for base in getattr(holder.node, "bases", [])}
                    if any("Iterable" in name or "Pipe" in name for name in names):
                        return True
                    if (
                        holder.is_class
                        and "__iter__" in holder.functions
                        and "__getitem__" not in holder.functions
                    ):
                        return True
                if "Iterable" in ast.unparse(inner.func) or "streaming" in {k.arg for k in inner.keywords}:
                    return True
    return False


def random_calls(program: ProgramCode, node: ast.AST, scope: Scope) -> list[Call]:
    """The random generators that a data set is made with, when it is made: not those of ``__getitem__``."""
    found = []
    for part, _ in expressions(program, node, scope):
        for inner in ast.walk(part):
            if isinstance(inner, ast.Call):
                call = program.values.call(inner)
                if call is not None and call.last in _RANDOM and call.last not in _SEEDED:
                    found.append(call)
    return found


def is_synthetic(program: ProgramCode, node: ast.AST, scope: Scope) -> bool:
    """Whether a data set is random: each rank may have one of its own."""
    if random_calls(program, node, scope):
        return True
    if any(made.last in _SEEDED for made in objects(program.values.of(node, scope))):
        return True
    for part, inside in expressions(program, node, scope):
        for inner in ast.walk(part):
            if isinstance(inner, ast.Call):
                for holder in program.graph.functions(inner.func, inside):
                    item = holder.functions.get("__getitem__") if holder.is_class else None
                    if item is not None and any(call.last in _RANDOM for call in item.calls):
                        return True
    return False


def seeds(program: ProgramCode) -> list[Call]:
    """Calls that seed a random generator."""
    return program.methods(*SEEDS)


def seeds_by_rank(program: ProgramCode) -> bool:
    """Whether a seed depends on the rank, so that ranks draw different numbers on purpose."""
    for call in seeds(program):
        for given in (*call.node.args, *(k.value for k in call.node.keywords)):
            if depends_on(program.values.of(given, call.scope), *_RANKS):
                return True
            if any("rank" in name.lower() or name == "seed_offset" for name in identifiers(given)):
                return True
    return False


def seeded_by_rank_alone(program: ProgramCode) -> bool:
    """Whether each seed depends on the rank, and no generator has a seed that is the same for all."""
    given = [(argument, call.scope) for call in seeds(program) for argument in call.node.args]
    own = [depends_on(program.values.of(argument, scope), *_RANKS) for argument, scope in given]
    return bool(own) and all(own) and not _seeds_an_argument(program)


def may_seed(program: ProgramCode) -> bool:
    """Whether a seed is set anywhere, also by a generator or an argument."""
    return bool(seeds(program)) or _seeds_an_argument(program)


def _seeds_an_argument(program: ProgramCode) -> bool:
    return any(
        keyword in call.keywords
        for call in program.calls
        for keyword in ("generator", "random_state", "seed")
    )
