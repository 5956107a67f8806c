"""Every rank downloads the data set."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.flow import WITHS, comes_after, holders, tests_around
from rankup.check.facts.program.module import Call
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sounds import MAY_DOWNLOAD, TURNS, says
from rankup.check.facts.program.value import the_constant
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import alone, indent_of, lines_after, lines_before, name_for, surely_before
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity

_PACKAGES = ("torchvision.datasets.", "torchaudio.datasets.", "torchtext.datasets.")


def find(program: Program) -> Iterator[Match]:
    if not program.entry or not (program.distributed or program.wraps or program.many_ranks):
        return
    if program.starts and not program.many_ranks:
        return
    calls = [call for call in program.calls if call.name.startswith(_PACKAGES)]
    loading = [call for call in calls if the_constant(program.value(call, "download")) is True]
    if any(program.first_only(call) or _on_one_rank(program, call) for call in loading):
        return
    alike = [
        call
        for call in loading
        if not (
            program.guards.limited(call.node, call.scope) or _in_turns(program, call) or _may_be_single(call)
        )
    ]
    if alike:
        first = alike[0]
        more = f" ({len(alike) - 1} more like this)" if len(alike) > 1 else ""
        edits = [edit for call in alike for edit in _edit(program, call)]
        message = f"All ranks run {first.text}(download=True) at the same time{more}."
        yield match(first.module, first.node, message, *edits)


def _on_one_rank(program: Program, call: Call) -> bool:
    """Whether the process that starts the ranks runs a call, or Lightning's hook for one process of each node."""
    return not program.on_all_ranks(call) or call.scope.name == "prepare_data"


def _in_turns(program: Program, call: Call, depth: int = 0) -> bool:
    """Whether ranks take turns: between barriers, with a lock, or inside ``main_process_first()``."""
    around = holders(call.module, call.node, *WITHS)
    if any(says(item.context_expr, TURNS) for holder in around for item in getattr(holder, "items", ())):
        return True
    for other in call.scope.calls:
        waits = other.last in {"barrier", "wait_for_everyone"} and comes_after(call, other)
        if waits and program.guards.of(other.node, other.scope):
            return True
    sites = program.graph.sites.get(call.scope, [])
    return bool(sites) and depth < 3 and all(_in_turns(program, site.call, depth + 1) for site in sites)


def _may_be_single(call: Call) -> bool:
    """Whether the call is in a branch that asks for one process."""
    return any(says(test, MAY_DOWNLOAD) for test in tests_around(call.module, call.node))


def _edit(program: Program, call: Call) -> tuple[Edit, ...]:
    """Rank 0 downloads while the others wait: only if the process group is known to exist already."""
    module, statement = call.module, call.module.statement(call.node)
    names = ("get_rank", "barrier", "is_initialized")
    rank, barrier, exists = (name_for(module, f"torch.distributed.{name}") for name in names)
    before = [one for one in program.inits if one.scope is call.scope and comes_after(call, one)]
    if rank is None or barrier is None or exists is None or not before or not alone(module, statement):
        return ()
    if program.guards.of(before[0].node, call.scope):
        return ()
    step = "\t" if indent_of(module, statement).startswith("\t") else "    "
    asked = "" if surely_before(module, before[0].node, statement) else f"{exists}() and "
    return (
        lines_before(module, statement, f"if {asked}{rank}() != 0:", f"{step}{barrier}()"),
        lines_after(module, statement, f"if {asked}{rank}() == 0:", f"{step}{barrier}()"),
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
