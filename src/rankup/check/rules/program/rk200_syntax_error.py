"""The text is not Python."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.program import Program
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    mistake = program.syntax_error
    if mistake is not None:
        message = mistake.message.rstrip(".?")
        yield Match(
            program.document,
            mistake.span,
            f"Python cannot read this line: {message}.",
            fix="Close the bracket before the next statement." if "never closed" in message else None,
        )


RULE = Rule(
    code="RK200",
    name="syntax-error",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="The program has a syntax error.",
    why="Python refuses the whole file, so every rank ends at once. In tutorials the closing bracket of a call often "
    "stands after the next statements.",
    fix="Correct the line, or the one before it.",
    find=find,
    fires=(
        """import torch
def main():
print(torch.__version__)
""",
        """print "loss", 3
""",
    ),
    silent=(
        """import torch

print(torch.__version__)
""",
        """!pip install torch
import torch
""",
    ),
)
