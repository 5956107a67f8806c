"""The program itself writes CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.module import Definition, Module, Scope, place
from rankup.check.facts.program.names import words
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import Kind, is_only, the_constant
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import alone, removed
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity

_NAMES = (".CUDA_VISIBLE_DEVICES", ".HIP_VISIBLE_DEVICES")
_TOUCHES = words("set_device current_device get_device_properties get_device_name synchronize init")


def find(program: Program) -> Iterator[Match]:
    for module in program.modules if program.uses_torch else ():
        for scope in module.scopes.values():
            for definition in (one for name in _NAMES for one in scope.definitions.get(name, ())):
                found = _judged(program, scope, definition)
                if found is not None:
                    message, severity = found
                    yield match(module, definition.at, message, *_edit(module, definition), severity=severity)


def _judged(program: Program, scope: Scope, definition: Definition) -> tuple[str, Severity] | None:
    value = program.values.of(definition.value, scope)
    for call in scope.calls:
        if (
            call.last in _TOUCHES
            and call.name.startswith("torch.")
            and place(call.node) < place(definition.at)
        ):
            return (
                f"CUDA has been asked at {call.module.line(call.node.lineno)} already; a change of the visible devices "
                "after that has no effect.",
                Severity.WARNING,
            )
    local = [is_only(program.value(call, "device", 0), Kind.LOCAL_RANK) for call in program.device_calls]
    if is_only(value, Kind.LOCAL_RANK) and any(local):
        return "One device is made visible, and then the local rank is used as its index.", Severity.ERROR
    text = the_constant(value)
    if isinstance(text, str) and text and (program.inits or program.starts):
        strict = "," in text or any(start.launcher not in {"", "python"} for start in program.starts)
        return (
            f'The devices "{text}" are chosen here, whatever the scheduler has given to the job.',
            Severity.WARNING if strict else Severity.NOTE,
        )
    return None


def _edit(module: Module, definition: Definition) -> tuple[Edit, ...]:
    """The statement is taken away, unless its block would be empty then."""
    statement = module.statement(definition.at)
    holder, name = module.parents[statement]
    if len(getattr(holder, name)) < 2 or not alone(module, statement):
        return ()
    return (removed(module, statement),)


RULE = Rule(
    code="RK213",
    name="cvd-in-python",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="The program writes CUDA_VISIBLE_DEVICES itself.",
    why="The scheduler sets it to the GPUs of the job. A constant names other GPUs on another node, and a change after "
    "CUDA's start is ignored.",
    fix="Remove it and leave the choice to the scheduler; use torch.cuda.set_device(local_rank).",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """import os
import torch
import torch.distributed as dist

os.environ["CUDA_VISIBLE_DEVICES"] = "0,1,2,3"
dist.init_process_group("nccl")
""",
        """import os
import torch

def main():
    print(torch.cuda.get_device_name())
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
""",
    ),
    silent=(
        """import os
os.environ["CUDA_VISIBLE_DEVICES"] = "0"
import torch

print(torch.ones(1))
""",
        """import os
import torch

os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["SLURM_LOCALID"]
torch.cuda.set_device(0)
""",
    ),
)
