"""A setting of DDP that costs time in each step."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import the_constant
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity

_DEFAULT = 25  # MiB
_SMALL = 10


def find(program: Program) -> Iterator[Match]:
    for call in program.named("DistributedDataParallel", "pytorch_lightning.strategies.DDPStrategy"):
        unused, bucket = call.argument("find_unused_parameters"), call.argument("bucket_cap_mb")
        if unused is not None and the_constant(program.values.of(unused, call.scope)) is True:
            yield match(
                call.module,
                unused,
                "find_unused_parameters=True makes DDP walk the graph after each forward pass.",
            )
        size = the_constant(program.values.of(bucket, call.scope))
        number = isinstance(size, (int, float)) and not isinstance(size, bool)
        if bucket is not None and number and 0 < size < _DEFAULT:
            yield match(
                call.module,
                bucket,
                f"Gradients are reduced in pieces of {size} MiB; DDP's own value is {_DEFAULT}.",
                severity=Severity.WARNING if size < _SMALL else Severity.NOTE,
                why="Many small all-reduces are limited by latency, above all between nodes (pytorch#118421).",
                fix="Leave bucket_cap_mb out, or measure larger values.",
            )


RULE = Rule(
    code="RK212",
    name="slow-ddp-setting",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="DDP is asked to look for unused parameters, or to send gradients in small pieces.",
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
