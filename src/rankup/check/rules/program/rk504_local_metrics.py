"""A metric over one rank's part is shown as that of all, or divided by the length of all the data."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.module import Call, Scope, last_name, same
from rankup.check.facts.program.names import words
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import strided_part
from rankup.check.facts.program.sounds import ADDS_UP, sounds
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import divided_by_length, dividing, evaluating, match, whole_lengths
from rankup.findings.finding import Confidence, Severity

#: The call of a run → the parameter that is all the data.
_DATA_OF = {"prepare": ("dataset", 2), "batches": ("dataset", 0)}
_SHOWS = words("print info log log_metric add_scalar write log_metrics warning")


def find(program: Program) -> Iterator[Match]:
    if not program.whole:
        return
    added = any(_adds_up(call) for call in program.calls)
    if program.named("rankup.init") and not added:
        yield from _of_rankup(program)
    if program.distributed and not program.gets(Does.METRICS):
        yield from _divided(program)
        if not added:
            yield from _shown(program)


def _adds_up(call: Call) -> bool:
    return sounds(call.last, ADDS_UP) or call.name.startswith("torchmetrics")


def _of_rankup(program: Program) -> Iterator[Match]:
    """``run.batches`` gives each rank its share."""
    asks = [call for call in program.calls if call.base is not None and "run" in last_name(call.base)]
    if program.methods("means", "Meter") or any(call.last in {"sum", "mean", "gather"} for call in asks):
        return
    if any("over_ranks" in call.keywords for call in program.calls):
        return
    for call in asks:
        yield from _divided_share(call)
        if call.last == "batches" and _is_shown(program, call.scope):
            yield match(
                call.module,
                call.node,
                "The evaluation sees this rank's share of run.batches, and nothing adds the shares up.",
                fix="Add up by run.meter.add(…) and run.meter.means(), or add up sums and counts and give them to "
                "run.sum.",
            )


def _divided_share(call: Call) -> Iterator[Match]:
    """``total += …`` in a loop over ``run.prepare(…, data)`` or ``run.batches(data)``, and ``total / len(data)``."""
    place = _DATA_OF.get(call.last)
    data = call.argument(*place) if place is not None else None
    if not isinstance(data, ast.Name):
        return
    added = {
        node.target.id
        for node in call.module.of(ast.AugAssign)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }
    for node, of in divided_by_length(call.scope):
        if isinstance(node.left, ast.Name) and node.left.id in added and same(of, data):
            yield match(
                call.module,
                node,
                f"A rank's sum is divided by len({data.id}), the length of all the data, of which it has seen a part.",
                why="With N ranks the loss or accuracy that is shown is 1/N of the true one.",
                fix="Add up by run.meter.add(…) and run.meter.means(), or give sum and count to run.sum.",
            )


def _divided(program: Program) -> Iterator[Match]:
    """A rank's sum divided by ``len(loader.dataset)``."""
    for loader in program.data.loaders if program.data.samplers else ():
        for loop in loader.loops if dividing(program, loader) else ():
            if not any(
                _adds_up(call) for scope in _with_callers(program, loop.scope) for call in scope.calls
            ):
                for node, text in whole_lengths(loader, loop):
                    yield match(
                        loop.scope.module,
                        node,
                        f"A rank's sum is divided by {text}, the length of all the data, of which it has seen a part.",
                        why="With N ranks the loss or accuracy that is shown is 1/N of the true one.",
                        fix="Add the sums up with all_reduce and divide by the summed counts.",
                    )


def _shown(program: Program) -> Iterator[Match]:
    for loader in evaluating(program):
        samplers = [one for one in loader.samplers if one in program.data.samplers]
        given = loader.call.argument("dataset", 0)
        if not samplers and not strided_part(program, given, loader.call.scope):
            continue
        evaluates = any(loop.evaluates for loop in loader.loops)
        if evaluates and any(_is_shown(program, loop.scope) for loop in loader.loops):
            call = samplers[0] if samplers else loader.call
            yield match(
                call.module,
                call.node,
                "The evaluation sees this rank's part of the data, and nothing adds the parts up.",
            )


def _with_callers(program: Program, scope: Scope) -> set[Scope]:
    return {scope, *(site.call.scope for site in program.graph.sites.get(scope, ()))}


def _is_shown(program: Program, scope: Scope) -> bool:
    """Whether a function prints or logs something, or one that calls it."""
    return any(call.last in _SHOWS for each in _with_callers(program, scope) for call in each.calls)


RULE = Rule(
    code="RK504",
    name="local-metrics",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A result over a rank's part of the data is shown without adding up those of the others, or divided by the "
    "length of all the data.",
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
