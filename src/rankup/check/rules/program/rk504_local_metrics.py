"""A metric over one rank's part is shown as that of all."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.data import Loader
from rankup.check.facts.program.module import Call, Scope, dotted
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import expressions, strided
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_SHOWS = {"print", "info", "log", "log_metric", "add_scalar", "write", "log_metrics", "warning"}


def find(program: Program) -> Iterator[Match]:
    yield from _rankups(program)
    if not program.whole or program.frameworks or not program.inits:
        return
    if _adds_up(program):
        return
    for loader in program.data.loaders:
        samplers = [s for s in loader.samplers if s in program.data.samplers]
        if (
            not (samplers or _is_strided(program, loader))
            or not loader.evaluates
            or loader.trains
            or not any(loop.evaluates for loop in loader.loops)
        ):
            continue
        if _shows(program, loader):
            place = samplers[0] if samplers else loader.call
            yield Match(
                place.module.document,
                place.span,
                "The evaluation sees this rank's part of the data, and nothing adds the parts up.",
            )


def _rankups(program: Program) -> Iterator[Match]:
    """``run.batches`` gives each rank its share."""
    if not program.whole or not any(call.name == "rankup.init" for call in program.calls):
        return
    if _adds_up(program) or any(_adds_up_by_rankup(call) for call in program.calls):
        return
    for call in program.calls:
        if call.last == "batches" and _is_run(call) and _shows_in(program, call.scope):
            yield Match(
                call.module.document,
                call.span,
                "The evaluation sees this rank's share of run.batches, and nothing adds the shares up.",
                fix="Add up by run.meter.add(…) and run.meter.means(), or add up sums and counts and give them to "
                "run.sum.",
            )


def _adds_up_by_rankup(call: Call) -> bool:
    if call.last in {"means", "Meter"} or call.argument("over_ranks") is not None:
        return True
    return call.last in {"sum", "mean", "gather"} and _is_run(call)


def _is_run(call: Call) -> bool:
    """``run.sum``, ``self.run.sum``: not a method of a tensor, as far as names tell."""
    parts = dotted(call.base) if call.base is not None else None
    return parts is not None and "run" in parts[-1]


def _is_strided(program: Program, loader: Loader) -> bool:
    """``Subset(dataset, range(rank, len(dataset), world_size))``"""
    given = loader.call.argument("dataset", 0)
    return given is not None and any(
        strided(program, part) for part, _ in expressions(program, given, loader.call.scope, depth=2)
    )


def _adds_up(program: Program) -> bool:
    words = ("reduce", "gather", "synchronize_between", "sync_between", "all_to_all")
    return any(
        any(word in call.last for word in words) or call.name.startswith("torchmetrics")
        for call in program.calls
    )


def _shows(program: Program, loader: Loader) -> bool:
    return any(_shows_in(program, loop.scope) for loop in loader.loops)


def _shows_in(program: Program, scope: Scope) -> bool:
    """The function of ``scope``, or one that calls it."""
    scopes = {scope, *(site.call.scope for site in program.graph.sites.get(scope, ()))}
    return any(call.last in _SHOWS for each in scopes for call in each.calls)


RULE = Rule(
    code="RK504",
    name="local-metrics",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="An evaluation over a rank's part of the data is shown without adding up those of the others.",
    why="The accuracy that rank 0 prints is that of 1/N of the data, and it changes with the number of ranks.",
    fix="Add up sums and counts with dist.all_reduce before you divide.",
    find=find,
    fires=(
        """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def main(model, valid):
    dist.init_process_group("nccl")
    loader = DataLoader(valid, 32, sampler=DistributedSampler(valid, shuffle=False))
    counts = torch.zeros(2)
    with torch.no_grad():
        for x, y in loader:
            counts += torch.tensor([(model(x).argmax(1) == y).sum().item(), len(y)])
    if dist.get_rank() == 0:
        print("accuracy", counts[0] / counts[1])
    dist.barrier()

main(None, [])
""",
        """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def main(model, valid):
    dist.init_process_group("nccl")
    loader = DataLoader(valid, 32, sampler=DistributedSampler(valid, shuffle=False))
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            total += torch.nn.functional.cross_entropy(model(x), y).item()
    print("loss", total)

main(None, [])
""",
    ),
    silent=(
        """import rankup

run = rankup.init()

def evaluate(model, test):
    right = seen = 0
    for x, y in run.batches(test):
        right += (model(x).argmax(1) == y).sum().item()
        seen += len(y)
    return run.sum(right) / run.sum(seen)

print("accuracy", evaluate(None, []))
""",
        """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

def main(model, valid):
    dist.init_process_group("nccl")
    total = 0.0
    with torch.no_grad():
        for x, y in DataLoader(valid, 32):
            total += torch.nn.functional.cross_entropy(model(x), y).item()
    print("loss", total)

main(None, [])
""",
    ),
)
