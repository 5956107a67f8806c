"""A collective whose failure is ignored."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.flow import holders
from rankup.check.facts.program.module import last_name
from rankup.check.facts.program.program import Program
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity

_BROAD = ("", "Exception", "BaseException", "RuntimeError")


def find(program: Program) -> Iterator[Match]:
    for call in program.collectives:
        for holder in holders(call.module, call.node, ast.Try, parts=("body",)):
            handlers = getattr(holder, "handlers", [])
            if any(_is_broad(handler) and _goes_on(handler) for handler in handlers):
                yield match(
                    call.module,
                    call.node,
                    f"If {call.text}() fails on this rank, it goes on as if nothing had happened.",
                )
                break


def _is_broad(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or last_name(handler.type) in _BROAD


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether a handler neither raises, returns a sign of it, nor ends the process."""
    for node in ast.walk(handler):
        if isinstance(node, (ast.Raise, ast.Return)):
            return False
        if isinstance(node, ast.Call) and last_name(node) in ("exit", "_exit", "abort"):
            return False
    return True


RULE = Rule(
    code="RK220",
    name="swallowed-collective",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="A collective stands in a try whose handler catches everything and goes on.",
    why="After a failure the ranks are at different collectives: they exchange the wrong tensors, or wait for each "
    "other. Where the handler is for a single process, a question says so: dist.is_initialized().",
    fix="Ask dist.is_initialized() before, and let an error end the rank.",
    find=find,
    fires=(
        """import torch.distributed as dist

def wait():
    try:
        dist.barrier()
    except:
        pass
""",
        """import torch.distributed as dist

def total(loss):
    try:
        dist.all_reduce(loss)
    except Exception as error:
        print("no sum:", error)
    return loss
""",
    ),
    silent=(
        """import torch.distributed as dist

def total(loss):
    try:
        dist.all_reduce(loss)
    except Exception as error:
        print("no sum:", error)
        raise
    return loss
""",
        """import torch.distributed as dist

def wait(path):
    try:
        text = open(path).read()
    except Exception:
        text = ""
    dist.barrier()
    return text
""",
    ),
)
