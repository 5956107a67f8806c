"""CUDA_VISIBLE_DEVICES is used as an index of a device."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import Kind, is_only
from rankup.check.rule import Match, Rule, Safety
from rankup.check.rules.edits import replaced
from rankup.check.rules.queries import device_choices, match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    for one in device_choices(program):
        if is_only(program.values.of(one.number, one.scope), Kind.DEVICE_LIST):
            yield match(
                one.module,
                one.number,
                f"{one.by} gets a number from the list of visible devices, not an index into it.",
                replaced(one.module, one.number, _index(one.number)),
            )


def _index(given: ast.expr) -> str:
    """``int(devices[i])`` → ``i``; a single number → 0, the only visible device."""
    inner = given.args[0] if isinstance(given, ast.Call) and len(given.args) == 1 else given
    if isinstance(inner, ast.Subscript) and not isinstance(inner.slice, (ast.Constant, ast.Slice)):
        return ast.unparse(inner.slice)
    return "0"


RULE = Rule(
    code="RK203",
    name="visible-devices-index",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A device is chosen by a number from CUDA_VISIBLE_DEVICES or SLURM_JOB_GPUS.",
    why="CUDA counts the visible devices from 0. With CUDA_VISIBLE_DEVICES=2,3 the devices are cuda:0 and cuda:1, and "
    "cuda:2 does not exist. Entries can be UUIDs as well (examples#885).",
    fix="Use the local rank as index: the variable has chosen the devices already.",
    find=find,
    safety=Safety.SAFE,
    fires=(
        """import os
import torch

torch.cuda.set_device(int(os.environ["CUDA_VISIBLE_DEVICES"]))
""",
        """import os
import torch

gpu = int(os.environ["SLURM_JOB_GPUS"].split(",")[0])
torch.cuda.set_device(gpu)
""",
    ),
    silent=(
        """import os
import torch

count = len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % count)
""",
        """import os
import torch

print(os.environ["CUDA_VISIBLE_DEVICES"])
torch.cuda.set_device(0)
""",
    ),
)
