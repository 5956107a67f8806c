"""DDP looks for unused parameters in each step."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import the_constant
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    for call in program.named("DistributedDataParallel", "pytorch_lightning.strategies.DDPStrategy"):
        given = call.argument("find_unused_parameters")
        if given is not None and the_constant(program.values.of(given, call.scope)) is True:
            yield match(
                call.module,
                given,
                "find_unused_parameters=True makes DDP walk the graph after each forward pass.",
            )


RULE = Rule(
    code="RK212",
    name="find-unused",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="DDP is asked to look for unused parameters.",
    why="It costs time in each step. It is needed only if parts of the model get no gradient in some steps "
    "(mmdetection3d#488).",
    fix="Leave it out if all parameters are used in each step; DDP says so if they are.",
    find=find,
    fires=(
        """from torch.nn.parallel import DistributedDataParallel as DDP

def wrap(net):
    return DDP(net, find_unused_parameters=True)
""",
        """import torch

UNUSED = True

def wrap(net):
    return torch.nn.parallel.DistributedDataParallel(net, find_unused_parameters=UNUSED)
""",
    ),
    silent=(
        """from torch.nn.parallel import DistributedDataParallel as DDP

def wrap(net):
    return DDP(net, find_unused_parameters=False)
""",
        """from torch.nn.parallel import DistributedDataParallel as DDP

def wrap(net, args):
    return DDP(net, find_unused_parameters=args.find_unused)
""",
    ),
)
