"""What is known of a data set: whether ranks hold parts of it, whether it is random, whether seeds are set."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.code import ProgramCode
from rankup.check.facts.program.module import Call, Scope, last_name
from rankup.check.facts.program.names import names, words
from rankup.check.facts.program.sounds import OWN_SEED, SHARDED, sounds
from rankup.check.facts.program.value import RANKS, Kind, depends_on

_RANKS = (*RANKS, Kind.WORLD_SIZE)
_RANDOM = names(
    "rand randn randint randperm normal random uniform FakeData make_blobs rand_like randn_like standard_normal"
)
#: Random, but the same on all ranks.
_SEEDED = names("FakeData make_blobs")
_SHARDS = names("split_dataset_by_node shard split_by_node split_by_rank distributed_shard WebDataset")
SEEDS = words(
    "manual_seed seed set_seed seed_everything seed_all set_random_seed manual_seed_all fix_seed setup_seed"
)
SEEDS += words("set_seeds init_seeds set_all_seeds seed_torch enable_full_determinism fix_random_seeds")


def expressions(
    program: ProgramCode, node: ast.AST, scope: Scope, depth: int = 5
) -> list[tuple[ast.AST, Scope]]:
    """An expression with those that its names were assigned from, through functions' returns and constructors."""
    return [(at, inside) for at, inside, _ in _walked(program, node, scope, depth)]


def _walked(
    program: ProgramCode, node: ast.AST, scope: Scope, depth: int
) -> list[tuple[ast.AST, Scope, list[ast.AST]]]:
    """The same with all nodes of each; many rules ask for the same expression."""
    key = node, scope, depth
    if key not in program.walked:
        program.walked[key] = _walk(program, node, scope, depth)
    return program.walked[key]


def _walk(
    program: ProgramCode, node: ast.AST, scope: Scope, depth: int
) -> list[tuple[ast.AST, Scope, list[ast.AST]]]:
    found: list[tuple[ast.AST, Scope, list[ast.AST]]] = []
    seen: set[ast.AST] = set()
    waiting: list[tuple[ast.AST, Scope, int]] = [(node, scope, depth)]
    while waiting and len(found) < 200:
        at, inside, left = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        nodes = list(ast.walk(at))
        found.append((at, inside, nodes))
        for part in nodes:
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


def parts(
    program: ProgramCode, node: ast.AST | None, scope: Scope, depth: int = 5
) -> Iterator[tuple[ast.AST, Scope]]:
    """Every node of an expression, and of those that its names were assigned from."""
    for _, inside, nodes in _walked(program, node, scope, depth) if node is not None else ():
        for inner in nodes:
            yield inner, inside


def is_sharded(program: ProgramCode, node: ast.AST, scope: Scope) -> bool:
    """Whether a data set depends on the rank, or is cut into parts by something."""
    for inner, inside in parts(program, node, scope):
        if isinstance(inner, (ast.Name, ast.Attribute)) and sounds(last_name(inner), SHARDED):
            return True
        if isinstance(inner, ast.Call) and (
            last_name(inner) in _SHARDS or depends_on(program.values.of(inner, inside), *_RANKS)
        ):
            return True
    return False


def strided_part(program: ProgramCode, node: ast.expr | None, scope: Scope) -> str:
    """The step of ``range(rank, len(dataset), world_size)`` in a data set: some ranks get one sample more."""
    for inner, _ in parts(program, node, scope, depth=2):
        call = program.values.call(inner)
        if call is not None and call.last == "range" and len(call.node.args) == 3:
            start, _, step = (program.values.of(one, call.scope) for one in call.node.args)
            if depends_on(start, Kind.RANK) and depends_on(step, Kind.WORLD_SIZE):
                return ast.unparse(call.node.args[2])
    return ""


def is_iterable(program: ProgramCode, node: ast.AST, scope: Scope) -> bool:
    """Whether a data set is, or may be, a stream without a length."""
    for made in program.made(node, scope):
        if made.name.startswith(("webdataset", "datasets.", "torchdata", "litdata")):
            return True
    for inner, inside in parts(program, node, scope):
        if not isinstance(inner, ast.Call):
            continue
        if "Iterable" in ast.unparse(inner.func) or any(k.arg == "streaming" for k in inner.keywords):
            return True
        for holder in program.graph.functions(inner.func, inside):
            if any("Iterable" in last_name(base) or "Pipe" in last_name(base) for base in holder.bases):
                return True
            if holder.is_class and "__iter__" in holder.functions and "__getitem__" not in holder.functions:
                return True
    return False


def random_calls(program: ProgramCode, node: ast.AST, scope: Scope) -> list[Call]:
    """The random generators that a data set is made with, when it is made: not those of ``__getitem__``."""
    calls = [program.values.call(inner) for inner, _ in parts(program, node, scope)]
    return [call for call in calls if call is not None and call.last in _RANDOM - _SEEDED]


def is_synthetic(program: ProgramCode, node: ast.AST, scope: Scope) -> bool:
    """Whether a data set is random: each rank may have one of its own."""
    if random_calls(program, node, scope) or any(made.last in _SEEDED for made in program.made(node, scope)):
        return True
    for inner, inside in parts(program, node, scope):
        for holder in program.graph.functions(inner.func, inside) if isinstance(inner, ast.Call) else ():
            item = holder.functions.get("__getitem__") if holder.is_class else None
            if item is not None and any(call.last in _RANDOM for call in item.calls):
                return True
    return False


def seeds(program: ProgramCode) -> list[Call]:
    """Calls that seed a random generator."""
    return program.methods(*SEEDS)


def seeds_by_rank(program: ProgramCode) -> bool:
    """Whether a seed depends on the rank, so that ranks draw different numbers on purpose."""
    return any(
        depends_on(program.values.of(given, call.scope), *_RANKS) or sounds(given, OWN_SEED)
        for call in seeds(program)
        for given in call.given
    )


def seeded_by_rank_alone(program: ProgramCode) -> bool:
    """Whether each seed depends on the rank, and no generator has a seed that is the same for all."""
    given = [(argument, call.scope) for call in seeds(program) for argument in call.node.args]
    own = [depends_on(program.values.of(argument, scope), *_RANKS) for argument, scope in given]
    return bool(own) and all(own) and not _seeds_an_argument(program)


def may_seed(program: ProgramCode) -> bool:
    """Whether a seed is set anywhere, also by a generator or an argument."""
    return bool(seeds(program)) or _seeds_an_argument(program)


def _seeds_an_argument(program: ProgramCode) -> bool:
    return any(call.keywords & {"generator", "random_state", "seed"} for call in program.calls)
