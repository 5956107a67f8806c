"""Every rank downloads the data set."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.module import Call, place
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import the_constant
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import alone, indent_of, lines_after, lines_before, name_for
from rankup.findings.finding import Confidence, Severity

_PACKAGES = ("torchvision.datasets.", "torchaudio.datasets.", "torchtext.datasets.")


def find(program: Program) -> Iterator[Match]:
    if not program.entry or program.frameworks or not (program.inits or program.wraps or program.many_ranks):
        return
    if program.starts and not program.many_ranks:
        return
    calls = [call for call in program.calls if call.name.startswith(_PACKAGES)]
    loading = [call for call in calls if the_constant(program.value(call, "download")) is True]
    guarded = [call for call in loading if program.first_only(call) or not program.on_all_ranks(call)]
    if guarded:
        return
    for call in loading:
        if program.guards.limited(call.node, call.scope) or _in_turns(program, call) or _may_be_single(call):
            continue
        yield Match(
            call.module.document,
            call.span,
            f"All ranks run {ast.unparse(call.node.func)}(download=True) at the same time.",
            _edit(program, call),
        )


def _in_turns(program: Program, call: Call, depth: int = 0) -> bool:
    """Whether ranks take turns: between barriers, with a lock, or inside ``main_process_first()``."""
    module = call.module
    for holder, _ in module.ancestors(call.node):
        if isinstance(holder, (ast.With, ast.AsyncWith)):
            text = " ".join(ast.unparse(item.context_expr) for item in holder.items).lower()
            if "first" in text or "lock" in text:
                return True
    for other in call.scope.calls:
        waits = other.last in {"barrier", "wait_for_everyone"} and place(other.node) < place(call.node)
        if waits and program.guards.of(other.node, other.scope):
            return True
    sites = program.graph.sites.get(call.scope, [])
    return bool(sites) and depth < 3 and all(_in_turns(program, site.call, depth + 1) for site in sites)


def _may_be_single(call: Call) -> bool:
    """Whether the call is in a branch that asks for one process."""
    for holder, _ in call.module.ancestors(call.node):
        if isinstance(holder, (ast.If, ast.IfExp)):
            text = ast.unparse(holder.test).lower()
            if any(word in text for word in ("dist", "world", "ddp", "rank", "exists", "download")):
                return True
    return False


def _edit(program: Program, call: Call) -> tuple[Edit, ...]:
    """Rank 0 downloads while the others wait: only if the process group is known to exist already."""
    module = call.module
    statement = module.statement(call.node)
    rank = name_for(module, "torch.distributed.get_rank")
    barrier = name_for(module, "torch.distributed.barrier")
    if rank is None or barrier is None or not alone(module, statement):
        return ()
    before = [
        other for other in program.inits if other.scope is call.scope and place(other.node) < place(call.node)
    ]
    if not before or program.guards.of(before[0].node, call.scope):
        return ()
    step = "\t" if indent_of(module, statement).startswith("\t") else "    "
    return (
        lines_before(module, statement, f"if {rank}() != 0:", f"{step}{barrier}()"),
        lines_after(module, statement, f"if {rank}() == 0:", f"{step}{barrier}()"),
    )


RULE = Rule(
    code="RK306",
    name="download-all-ranks",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="All ranks download a data set into the same folder.",
    why="Ranks read files that others are still writing: 'Dataset not found or corrupted', or a broken archive "
    "(tutorials#3065). Compute nodes may have no network at all.",
    fix="Download before the job, or on rank 0 only, followed by a barrier.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """import torch.distributed as dist
from torchvision import datasets

def main():
    dist.init_process_group("nccl")
    train = datasets.MNIST("data", train=True, download=True)
    return train

if __name__ == "__main__":
    main()
""",
        """import torch
import torch.distributed as dist
import torchvision

dist.init_process_group("gloo")
data = torchvision.datasets.CIFAR10(
    root="data",
    download=True,
)
""",
    ),
    silent=(
        """import torch.multiprocessing as mp
import torch.distributed as dist
from torchvision import datasets

def run(rank, data):
    dist.init_process_group("gloo", rank=rank, world_size=2)

if __name__ == "__main__":
    data = datasets.MNIST("data", download=True)
    mp.spawn(run, args=(data,), nprocs=2)
""",
        """from torchvision import datasets

if __name__ == "__main__":
    data = datasets.MNIST("data", download=True)
""",
    ),
)
