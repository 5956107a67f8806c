"""The state of a sharded model is asked for on one rank only."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program import Program
from rankup.check.facts.program_guards import Guard
from rankup.check.facts.program_module import Call, torch_last
from rankup.check.facts.program_value import Kind, kinds, objects
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import lines_before, replaced
from rankup.findings.finding import Confidence, Severity

_FUNCTIONS = (
    "get_model_state_dict",
    "get_state_dict",
    "get_optimizer_state_dict",
    "full_optim_state_dict",
    "optim_state_dict",
)


def find(program: Program) -> Iterator[Match]:
    sharded = [
        call for call in program.wraps if torch_last(call) in {"FullyShardedDataParallel", "fully_shard"}
    ]
    if not sharded:
        return
    for call in _states(program, sharded):
        guard = _guard(program, call)
        if guard is None:
            continue
        yield Match(
            call.module.document,
            call.span,
            f"{ast.unparse(call.node.func)}() of a sharded model is called on one rank only "
            f"(condition at line {getattr(guard.at, 'lineno', 0)}).",
            _hoisted(call, guard),
        )


def _states(program: Program, sharded: list[Call]) -> Iterator[Call]:
    in_place = {
        ast.unparse(call.node.args[0])
        for call in sharded
        if torch_last(call) == "fully_shard" and call.node.args
    }
    wrapped = [call for call in sharded if torch_last(call) != "fully_shard"]
    for call in program.methods("state_dict"):
        if call.base is None or call.node.args:
            continue
        value = program.values.of(call.base, call.scope)
        made = objects(value)
        known = bool(made) and kinds(value) == {Kind.OBJECT} and all(one in wrapped for one in made)
        if known or ast.unparse(call.base) in in_place:
            yield call
    for call in program.methods(*_FUNCTIONS):
        if call.name.startswith("torch.distributed"):
            yield call
    yield from program.named(
        "torch.distributed.checkpoint.save", "torch.distributed.checkpoint.save_state_dict"
    )


def _guard(program: Program, call: Call) -> Guard | None:
    for guard in program.guards.everywhere(call.node, call.scope):
        if guard.test.sure and guard.only_first and guard.test.of is not Kind.NODE_RANK:
            return guard
    return None


def _hoisted(call: Call, guard: Guard) -> tuple[Edit, ...]:
    """The state is taken before the condition, on all ranks."""
    at = guard.at
    if guard.called or guard.early or not isinstance(at, ast.If) or not _movable(call, at):
        return ()
    name = "full_state" if "full_state" not in call.scope.definitions else "sharded_state"
    text = call.module.document[call.span]
    return (lines_before(call.module, at, f"{name} = {text}"), replaced(call.module, call.node, name))


def _movable(call: Call, at: ast.If) -> bool:
    """Whether a line can be put before the condition without leaving a ``with`` that the call needs."""
    for holder, _ in call.module.ancestors(call.node):
        if holder is at:
            return "\n" not in call.module.document[call.span] and _starts_line(call, at)
        if isinstance(holder, (ast.With, ast.For, ast.While, ast.Try)):
            return False
    return False


def _starts_line(call: Call, at: ast.If) -> bool:
    document = call.module.document
    return not document.line(at.lineno - 1)[: at.col_offset].strip() and not document.line(
        at.lineno - 1
    ).lstrip().startswith("elif")


RULE = Rule(
    code="RK210",
    name="rank0-fsdp-state",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="The state of a model sharded by FSDP is asked for on one rank only.",
    why="To take the state of a sharded model gathers the shards: a collective that all ranks must call. Rank 0 waits "
    "until the timeout (transformers#10596).",
    fix="Call state_dict() on all ranks, and write the file on rank 0 only.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def main(net):
    model = FSDP(net)
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "model.pt")
""",
        """import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

def main(model):
    rank = dist.get_rank()
    fully_shard(model)
    if rank == 0:
        state = model.state_dict()
        torch.save(state, "model.pt")
""",
    ),
    silent=(
        """import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def main(net):
    model = FSDP(net)
    state = model.state_dict()
    if dist.get_rank() == 0:
        torch.save(state, "model.pt")
""",
        """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(net):
    model = DDP(net)
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "model.pt")
""",
    ),
)
