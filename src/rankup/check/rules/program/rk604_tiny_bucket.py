"""Gradients are sent in small pieces."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import the_constant
from rankup.check.rule import Match, Rule, Safety
from rankup.check.rules.edits import replaced
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity

_DEFAULT = 25  # MiB
_SMALL = 10


def find(program: Program) -> Iterator[Match]:
    for call in program.named("DistributedDataParallel"):
        given = call.argument("bucket_cap_mb")
        size = the_constant(program.values.of(given, call.scope))
        number = isinstance(size, (int, float)) and not isinstance(size, bool)
        if given is not None and number and 0 < size < _DEFAULT:
            yield match(
                call.module,
                given,
                f"Gradients are reduced in pieces of {size} MiB; DDP's own value is {_DEFAULT}.",
                replaced(call.module, given, str(_DEFAULT)),
                severity=Severity.WARNING if size < _SMALL else Severity.NOTE,
            )


RULE = Rule(
    code="RK604",
    name="tiny-bucket",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="DDP's buckets are smaller than its default.",
    why="Many small all-reduces are limited by latency, above all between nodes (pytorch#118421).",
    fix="Leave bucket_cap_mb out, or measure larger values.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """from torch.nn.parallel import DistributedDataParallel as DDP

def wrap(net):
    return DDP(net, bucket_cap_mb=1)
""",
        """import torch

BUCKET = 4

def wrap(net):
    return torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=BUCKET)
""",
    ),
    silent=(
        """from torch.nn.parallel import DistributedDataParallel as DDP

def wrap(net):
    return DDP(net, bucket_cap_mb=100)
""",
        """from torch.nn.parallel import DistributedDataParallel as DDP

def wrap(net, args):
    return DDP(net, bucket_cap_mb=args.bucket)
""",
    ),
)
