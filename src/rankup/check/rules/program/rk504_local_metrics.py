"""A metric over one rank's part is shown as that of all."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.data import Loader
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import expressions, strided
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_SHOWS = {"print", "info", "log", "log_metric", "add_scalar", "write", "log_metrics", "warning"}


def find(program: Program) -> Iterator[Match]:
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
    for loop in loader.loops:
        scopes = {loop.scope, *(site.call.scope for site in program.graph.sites.get(loop.scope, ()))}
        if any(call.last in _SHOWS for scope in scopes for call in scope.calls):
            return True
    return False


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

@torch.no_grad()
def evaluate(model, loader):
    right = count = 0
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum().item()
        count += len(y)
    return right / count

def main(model, test):
    dist.init_process_group("nccl")
    test_loader = DataLoader(test, 32, sampler=DistributedSampler(test, shuffle=False))
    accuracy = evaluate(model, test_loader)
    if dist.get_rank() == 0:
        print("accuracy", accuracy)

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
        """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def main(model, valid):
    dist.init_process_group("nccl")
    loader = DataLoader(valid, 32, sampler=DistributedSampler(valid, shuffle=False))
    total = torch.zeros(1)
    with torch.no_grad():
        for x, y in loader:
            total += torch.nn.functional.cross_entropy(model(x), y)
    dist.all_reduce(total)
    print("loss", total)

main(None, [])
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
