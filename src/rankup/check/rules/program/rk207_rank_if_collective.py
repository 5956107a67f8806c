"""A collective that only some ranks call."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.guards import Guard
from rankup.check.facts.program.module import Call, Scope, full_name
from rankup.check.facts.program.names import words
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import Kind, objects
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_OF_ACCELERATE = {
    "wait_for_everyone",
    "gather",
    "gather_for_metrics",
    "reduce",
    "save_state",
    "pad_across_processes",
}
_OF_LIGHTNING = {"fit", "validate", "test", "predict", "save_checkpoint"}
_TRAINERS = {"lightning.Trainer", "lightning.pytorch.Trainer", "pytorch_lightning.Trainer"}
_OF_DEEPSPEED = {"save_checkpoint", "load_checkpoint"}
_OF_MPI = words(
    """
    allreduce Allreduce reduce Reduce bcast Bcast gather Gather Gatherv allgather Allgather Allgatherv scatter Scatter
    Scatterv alltoall Alltoall barrier Barrier
    """
)


def find(program: Program) -> Iterator[Match]:
    if not program.uses_torch:
        return
    collectives = [*program.collectives, *_of_frameworks(program), *_of_mpi(program)]
    if not collectives:
        return
    sides = _sides(program, collectives)
    for call in collectives:
        guard = _guard(program, call)
        if guard is not None and not _paired(call.last, guard, sides):
            yield _match(call, guard, f"{ast.unparse(call.node.func)}()")
    inside = {call.scope for call in collectives if call.scope.is_function and _always(program, call)}
    if not inside:
        return
    for call, targets in program.graph.called.items():
        guard = _guard(program, call)
        if guard is None:
            continue
        for target in targets:
            found = _first(program, target, inside, collectives)
            if (
                found is not None
                and not _paired(found.last, guard, sides)
                and not _answered(program, call, guard)
            ):
                yield _match(
                    call,
                    guard,
                    f"{ast.unparse(call.node.func)}(), which calls {ast.unparse(found.node.func)}(),",
                )
                break


def _match(call: Call, guard: Guard, what: str) -> Match:
    line = getattr(guard.at, "lineno", 0)
    if guard.early:
        where = f"after the {guard.test.of.value} has decided at line {line} who goes on"
    else:
        where = f"under the condition on the {guard.test.of.value} at line {line}"
    others = "the other ranks" if guard.test.first else "the first rank"
    return Match(
        call.module.document,
        call.span,
        f"{what} is called {where}; {others} never join{'' if guard.test.first else 's'} it.",
        confidence=Confidence.SURE if not guard.test.partly else Confidence.LIKELY,
    )


def _guard(program: Program, call: Call) -> Guard | None:
    for guard in program.guards.of(call.node, call.scope):
        test = guard.test
        if test.sure and not test.either and test.of is not Kind.NODE_RANK:
            return guard
    return None


def _sides(program: Program, collectives: list[Call]) -> set[tuple[str, bool]]:
    """The collectives of each side of a condition: those that stand on both sides are paired."""
    found: set[tuple[str, bool]] = set()
    for call in collectives:
        for guard in program.guards.everywhere(call.node, call.scope):
            found.add((call.last, guard.test.first))
    return found


def _paired(name: str, guard: Guard, sides: set[tuple[str, bool]]) -> bool:
    return (name, not guard.test.first) in sides


def _answered(program: Program, call: Call, guard: Guard) -> bool:
    """Whether the other ranks call the same function: ``if main: f()`` here, ``if not main: f()`` there."""
    return any(
        other.test.first != guard.test.first
        for function in program.graph.called[call]
        for site in program.graph.sites[function]
        for other in program.guards.of(site.call.node, site.call.scope)
    )


def _always(program: Program, call: Call) -> bool:
    """Whether a function calls a collective whatever its arguments are."""
    if program.guards.of(call.node, call.scope):
        return False
    for holder, field in call.module.ancestors(call.node):
        if isinstance(holder, (ast.If, ast.IfExp)) and field in {"body", "orelse"}:
            text = ast.unparse(holder.test)
            if (
                field == "orelse"
                or "not " in text
                or not any(w in text for w in ("initialized", "world", "distributed"))
            ):
                return False
        if isinstance(holder, (ast.ExceptHandler, ast.While)):
            return False
    for statement in call.scope.body[:4]:  # if not distributed: return
        if statement.lineno >= call.node.lineno:
            break
        if isinstance(statement, ast.If) and any(isinstance(s, ast.Return) for s in statement.body):
            text = ast.unparse(statement.test)
            if not any(word in text for word in ("initialized", "world", "distributed", "available")):
                return False
    return True


def _first(program: Program, target: Scope, inside: set[Scope], collectives: list[Call]) -> Call | None:
    for scope in (target, *(s for call in target.calls for s in _plainly_called(program, call))):
        if scope in inside:
            for call in collectives:
                if call.scope is scope and _always(program, call):
                    return call
    return None


def _plainly_called(program: Program, call: Call) -> list[Scope]:
    if program.guards.of(call.node, call.scope):
        return []
    if any(
        isinstance(holder, (ast.If, ast.While, ast.IfExp)) for holder, _ in call.module.ancestors(call.node)
    ):
        return []
    return program.graph.called.get(call, [])


def _of_frameworks(program: Program) -> Iterator[Call]:
    if "accelerate" in program.frameworks:
        for call in program.methods(*_OF_ACCELERATE):
            if call.base is not None and _made_by(program, call, "accelerate.Accelerator"):
                yield call
    if "lightning" in program.frameworks:
        for call in program.methods(*_OF_LIGHTNING):
            if call.base is not None and _made_by(program, call, *_TRAINERS):
                yield call
    if "deepspeed" in program.frameworks:
        for call in program.methods(*_OF_DEEPSPEED):
            if call.base is not None and _made_by(program, call, "deepspeed.initialize"):
                yield call


def _of_mpi(program: Program) -> Iterator[Call]:
    """The collectives of mpi4py over all ranks."""
    if not any(name.startswith("mpi4py") for module in program.modules for name, _, _ in module.imported):
        return
    for call in program.methods(*_OF_MPI):
        if call.base is not None and full_name(call.module, call.scope, call.base) == "mpi4py.MPI.COMM_WORLD":
            yield call


def _made_by(program: Program, call: Call, *names: str) -> bool:
    assert call.base is not None
    value = program.values.of(call.base, call.scope)
    inner = frozenset().union(*(atom.detail[0] for atom in value if atom.kind is Kind.ITEM))
    made = objects(value) + objects(inner)
    return bool(made) and all(one.name in names for one in made)


RULE = Rule(
    code="RK207",
    name="rank-if-collective",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A collective is called on some ranks only.",
    why="All ranks of a group must call a collective. The ranks that do wait for the others until the timeout "
    "(sparsify#5).",
    fix="Move the collective out of the condition, so that all ranks call it; keep only the print or the save inside.",
    find=find,
    fires=(
        """import lightning as L

def main(model, data):
    trainer = L.Trainer(devices=4, num_nodes=2)
    trainer.fit(model, data)
    if trainer.is_global_zero:
        trainer.save_checkpoint("last.ckpt")
""",
        """from accelerate import Accelerator

accelerator = Accelerator()
if accelerator.is_main_process:
    print("ready")
    accelerator.wait_for_everyone()
""",
    ),
    silent=(
        """import torch.distributed as dist

def report(loss):
    dist.all_reduce(loss)
    if dist.get_rank() == 0:
        print(loss.item())
""",
        """import torch.distributed as dist

def report(loss, leaders):
    if dist.get_rank() < 4:
        dist.all_reduce(loss, group=leaders)
    if dist.get_world_size() > 1:
        dist.barrier()
""",
    ),
)
