"""A keyword that DataParallel does not have."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.program import Program
from rankup.check.facts.program_module import torch_last
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity

_WRONG = ("gpu_ids", "gpus", "devices", "device_id", "gpu_id", "device")


def find(program: Program) -> Iterator[Match]:
    for call in program.named(
        "torch.nn.DataParallel", "torch.nn.parallel.DataParallel", "DistributedDataParallel"
    ):
        if not call.name.startswith("torch.nn"):
            continue
        for keyword in call.node.keywords:
            if keyword.arg in _WRONG:
                span = call.module.span(keyword)
                name = Span(span.start, span.start + len(keyword.arg))
                yield Match(
                    call.module.document,
                    span,
                    f"{torch_last(call)} has no argument {keyword.arg}; it is called device_ids.",
                    (Edit(name, "device_ids"),),
                )


RULE = Rule(
    code="RK214",
    name="dataparallel-keyword",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="DataParallel or DistributedDataParallel gets an argument that it does not have.",
    why="Python raises TypeError: unexpected keyword argument.",
    fix="Write device_ids=.",
    find=find,
    safety=Safety.SAFE,
    fires=(
        """import torch

model = torch.nn.DataParallel(torch.nn.Linear(2, 2), gpu_ids=[0, 1])
""",
        """from torch.nn.parallel import DistributedDataParallel as DDP

def wrap(net, local_rank):
    return DDP(net, gpus=[local_rank])
""",
    ),
    silent=(
        """import torch

model = torch.nn.DataParallel(torch.nn.Linear(2, 2), device_ids=[0, 1])
""",
        """from mytools import DataParallel

model = DataParallel(None, gpu_ids=[0, 1])
""",
    ),
)
