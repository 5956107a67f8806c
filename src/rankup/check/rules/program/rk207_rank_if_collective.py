"""A collective that only some ranks call: an open one, or one that a wrapped model hides."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.flow import BRANCHES, holders
from rankup.check.facts.program.guards import Guard
from rankup.check.facts.program.module import Call, Scope, full_name, last_name, same, torch_last
from rankup.check.facts.program.names import words
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sounds import GROUP_EXISTS, sounds
from rankup.check.facts.program.value import Kind, the_constant
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity

_OF_MPI = words(
    """
    allreduce Allreduce reduce Reduce bcast Bcast gather Gather Gatherv allgather Allgather Allgatherv scatter Scatter
    Scatterv alltoall Alltoall barrier Barrier
    """
)
_OF_STATE = words(
    "get_model_state_dict get_state_dict get_optimizer_state_dict full_optim_state_dict optim_state_dict"
)
_BUFFERED = ("BatchNorm", "SyncBatchNorm", "register_buffer", "InstanceNorm", "LazyBatchNorm")


def find(program: Program) -> Iterator[Match]:
    if not program.uses_torch:
        return
    collectives = [*program.collectives, *program.of_frameworks(), *_of_mpi(program)]
    if collectives:
        yield from _open(program, collectives)
    if program.wraps:
        yield from _forwards(program)
        yield from _states(program)


# -- those that the program itself calls


def _of_mpi(program: Program) -> Iterator[Call]:
    """The collectives of mpi4py over all ranks."""
    for call in program.methods(*_OF_MPI):
        if call.base is not None and full_name(call.module, call.scope, call.base) == "mpi4py.MPI.COMM_WORLD":
            yield call


def _open(program: Program, collectives: list[Call]) -> Iterator[Match]:
    # Collectives that stand on both sides of a condition are paired.
    sides = {
        (call.last, guard.test.first)
        for call in collectives
        for guard in program.guards.everywhere(call.node, call.scope)
    }
    for call in collectives:
        guard = _guard(program, call)
        if guard is not None and (call.last, not guard.test.first) not in sides:
            yield _match(call, guard, f"{call.text}()")
    inside: dict[Scope, Call] = {}
    for call in collectives:
        if call.scope.is_function and _always(program, call):
            inside.setdefault(call.scope, call)
    for call in program.graph.called if inside else ():
        guard = _guard(program, call)
        if guard is None:
            continue
        for found in [
            one for target in program.graph.called[call] for one in _first(program, target, inside)
        ][:1]:
            if (found.last, not guard.test.first) not in sides and not _answered(program, call, guard):
                yield _match(call, guard, f"{call.text}(), which calls {found.text}(),")


def _match(call: Call, guard: Guard, what: str) -> Match:
    line = call.module.line(guard.line)
    # A rank modulo a number counts as a local rank, and may be none.
    rank = "rank" if guard.test.of is Kind.LOCAL_RANK else guard.test.of.value
    where = f"under the condition on the {rank} at {line}"
    if guard.early:
        where = f"after the {rank} has decided at {line} who goes on"
    others = "the other ranks never join" if guard.test.first else "the first rank never joins"
    confidence = Confidence.LIKELY if guard.test.partly else Confidence.SURE
    return match(call.module, call.node, f"{what} is called {where}; {others} it.", confidence=confidence)


def _guard(program: Program, call: Call) -> Guard | None:
    for guard in program.guards.of(call.node, call.scope):
        if guard.test.sure and not guard.test.either and guard.test.of is not Kind.NODE_RANK:
            return None if _forms_the_group(program, guard) else guard
    return None


def _forms_the_group(program: Program, guard: Guard) -> bool:
    """Whether the group is formed under the same condition: then all its members are where it holds."""
    return bool(program.inits) and all(
        any(
            other.at is guard.at and other.test == guard.test
            for other in program.guards.everywhere(init.node, init.scope)
        )
        for init in program.inits
    )


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
    if program.guards.of(call.node, call.scope) or holders(
        call.module, call.node, ast.ExceptHandler, ast.While
    ):
        return False
    for holder, field in call.module.ancestors(call.node):
        if isinstance(holder, BRANCHES) and field in {"body", "orelse"}:
            asks = sounds(ast.unparse(holder.test), ("initialized", "world", "distributed"))
            if field == "orelse" or not asks or "not " in ast.unparse(holder.test):
                return False
    first = [one for one in call.scope.body[:4] if one.lineno < call.node.lineno]
    returns = [
        one for one in first if isinstance(one, ast.If) and any(isinstance(s, ast.Return) for s in one.body)
    ]
    return all(sounds(ast.unparse(one.test), GROUP_EXISTS) for one in returns)  # if not distributed: return


def _first(program: Program, target: Scope, inside: dict[Scope, Call]) -> Iterator[Call]:
    """The collective that a function calls in any case, by itself or by a function that it calls in any case."""
    plain = [
        scope
        for call in target.calls
        if not program.guards.of(call.node, call.scope)
        and not holders(call.module, call.node, *BRANCHES, ast.While)
        for scope in program.graph.called.get(call, ())
    ]
    return (inside[scope] for scope in (target, *plain) if scope in inside)


# -- those of a wrapped model


def _forwards(program: Program) -> Iterator[Match]:
    """``model(x)``: DDP broadcasts buffers, FSDP gathers parameters."""
    wraps = [call for call in program.wraps if torch_last(call) != "fully_shard"]
    # fully_shard changes the model itself.
    in_place = [call for call in program.wraps if torch_last(call) == "fully_shard"]
    sharded = [one for call in in_place for one in program.made(call.argument("module", 0), call.scope)]
    for call in program.calls:
        function = call.node.func
        if call.name or not isinstance(function, (ast.Name, ast.Attribute)) or program.graph.called.get(call):
            continue
        guard = program.first_rank_guard(call)
        if guard is None or _forms_the_group(program, guard):
            continue
        if not program.surely(function, call.scope, lambda one: one in (*wraps, *sharded)):
            continue
        made = program.made(function, call.scope)
        by = "fully_shard" if any(one in sharded for one in made) else torch_last(made[0])
        severity = Severity.WARNING if _has_buffers(program, made[0]) else Severity.NOTE
        yield match(
            call.module,
            call.node,
            f"{call.text} is wrapped in {by} and called on one rank only (condition at "
            f"{call.module.line(guard.line)}).",
            severity=Severity.ERROR if by in {"FullyShardedDataParallel", "fully_shard"} else severity,
            confidence=Confidence.LIKELY,
            why="The forward pass of DDP broadcasts buffers, that of FSDP gathers parameters: both are collectives. "
            "One rank waits for the others (pytorch#54059).",
            fix="Call model.module(...) for an evaluation on one rank of DDP; with FSDP evaluate on all ranks.",
        )


def _has_buffers(program: Program, wrap: Call) -> bool:
    """Whether the model has buffers, such as those of BatchNorm; without them DDP's forward pass sends nothing."""
    if the_constant(program.value(wrap, "broadcast_buffers")) is False:
        return False
    for made in program.made(wrap.argument("module", 0), wrap.scope):
        inner = [last_name(one) for one in made.node.args if isinstance(one, ast.Call)]
        inner += [call.last for function in program.graph.called.get(made, ()) for call in function.calls]
        if made.name.startswith(("torchvision.models.", "timm.")) or any(
            name.startswith(_BUFFERED) for name in inner
        ):
            return True
    return False


def _states(program: Program) -> Iterator[Match]:
    """``model.state_dict()`` of a sharded model gathers the shards."""
    in_place = [call for call in program.wraps if torch_last(call) == "fully_shard"]
    wrapped = [call for call in program.wraps if torch_last(call) == "FullyShardedDataParallel"]
    if not in_place and not wrapped:
        return
    asks = [call for call in program.methods(*_OF_STATE) if call.name.startswith("torch.distributed")]
    likely: list[Call] = []  # of an object of the same name in another function
    asks += program.named("torch.distributed.checkpoint.save", "torch.distributed.checkpoint.save_state_dict")
    for call in program.methods("state_dict"):
        if call.base is not None and not call.node.args:
            known = program.surely(call.base, call.scope, lambda one: one in wrapped)
            alike = [one for one in in_place if same(call.base, one.argument("module", 0))]
            if known or any(one.scope is call.scope for one in alike):
                asks.append(call)
            elif alike:
                likely.append(call)
    for call in (*asks, *likely):
        guard = program.first_rank_guard(call)
        if guard is not None and not _forms_the_group(program, guard):
            yield match(
                call.module,
                call.node,
                f"{call.text}() of a sharded model is called on one rank only (condition at "
                f"{call.module.line(guard.line)}).",
                confidence=Confidence.LIKELY if call in likely else Confidence.SURE,
                why="To take the state of a sharded model gathers the shards: a collective that all ranks must call. "
                "Rank 0 waits until the timeout (transformers#10596).",
                fix="Call state_dict() on all ranks, and write the file on rank 0 only.",
            )


RULE = Rule(
    code="RK207",
    name="rank-if-collective",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A collective is called on some ranks only: an open one, the forward pass of a wrapped model, or the state of "
    "a sharded one.",
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
