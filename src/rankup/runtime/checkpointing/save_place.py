"""Where the script calls ``run.save()`` after the inner loop, and whether code of that epoch follows it."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator

from rankup.runtime.call_site import place
from rankup.runtime.checkpointing.carried.messages import warn
from rankup.runtime.checkpointing.carried.syntax import loops_around, parsed
from rankup.runtime.tracing.script_variables import script_frames

_SAID = ("print", "log", "debug", "info", "warning", "write", "flush", "set_postfix", "update")


def warn_of_code_after_save() -> bool:
    """Whether there is such code."""
    if line := _code_after_save():
        warn(
            f"run.save() at {line} is followed by more code after the inner loop: a resume from this snapshot begins "
            "with the next epoch, and does not run that code for this one; call run.save() after it"
        )
    return bool(line)


def _code_after_save() -> str:
    """The line of the call, if code that does more than report follows it in its loop; else "". Also "" if the call is
    in a function outside of the loop, or if the source cannot be read."""
    frame = next(script_frames(), None)
    if frame is None:
        return ""
    source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    loops, _ = loops_around(parsed(source), frame.f_lineno)
    if not loops:
        return ""
    if all(_reports(statement) for statement in _later(loops[0].body, frame.f_lineno)):
        return ""
    return place(frame.f_code.co_filename, frame.f_lineno)


def _later(block: list[ast.stmt], line: int) -> Iterator[ast.stmt]:
    """The statements after the one at ``line``, in its own block and in those around it."""
    for statement in block:
        if statement.lineno > line:
            yield statement
        elif line <= (statement.end_lineno or statement.lineno):
            for inner in ("body", "orelse", "finalbody"):
                blocks = getattr(statement, inner, [])
                if blocks and blocks[0].lineno <= line <= (blocks[-1].end_lineno or 0):
                    yield from _later(blocks, line)


def _reports(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):
        return all(_reports(each) for each in (*statement.body, *statement.orelse))
    if isinstance(statement, (ast.Break, ast.Pass, ast.Continue)):
        return True
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in _SAID
