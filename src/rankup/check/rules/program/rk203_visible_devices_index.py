"""CUDA_VISIBLE_DEVICES is used as an index of a device."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.module import Call
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import Kind, is_only
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import replaced
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    for call, given in _indices(program):
        value = program.values.of(given, call.scope)
        if not is_only(value, Kind.DEVICE_LIST):
            continue
        yield Match(
            call.module.document,
            call.module.span(given),
            f"{ast.unparse(call.node.func)}() gets a number from the list of visible devices, not an index into it.",
            _edit(call, given),
        )


def _indices(program: Program) -> Iterator[tuple[Call, ast.expr]]:
    for call in program.named("torch.cuda.set_device"):
        given = call.argument("device", 0)
        if given is not None:
            yield call, given
    for call in program.named("torch.device"):
        given = call.argument("index", 1)
        if given is not None:
            yield call, given


def _edit(call: Call, given: ast.expr) -> tuple[Edit, ...]:
    """``int(devices[i])`` → ``i``; a single number → 0, the only visible device."""
    inner = given
    if isinstance(inner, ast.Call) and len(inner.args) == 1:
        inner = inner.args[0]
    if isinstance(inner, ast.Subscript) and not isinstance(inner.slice, (ast.Constant, ast.Slice)):
        return (replaced(call.module, given, ast.unparse(inner.slice)),)
    return (replaced(call.module, given, "0"),)


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
