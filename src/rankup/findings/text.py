"""Findings as lines of plain text, the same in a terminal, in a table's file and in an error."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from rankup.findings.finding import Finding, Severity

TABLE_WIDTH = 105  # of files that hold a table and its findings


def text_lines(findings: Sequence[Finding], width: int | None = None) -> list[str]:
    """Each finding: its severity, then ``finding_lines``."""
    lines = []
    for finding in findings:
        head, *rest = finding_lines(finding, width)
        lines += [f"{finding.severity.value}: {head}", *rest]
    return lines


def finding_lines(finding: Finding, width: int | None = None) -> list[str]:
    """Message and code, then where, why and hint; long texts are wrapped to ``width``, if there is one."""
    lines = [f"{finding.message} [{finding.code}]"]
    for label, text in (("where:", finding.place), ("why:", finding.why), ("hint:", finding.fix)):
        if text and width is None:
            lines.append(f"  {label:<7}{text}")
        elif text:
            lines += wrap(
                text, width or 0, initial_indent=f"  {label:<7}", subsequent_indent=" " * 9,
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip
    return lines


def count(findings: Sequence[Finding]) -> str:
    """How many there are of each severity: ``2 errors, 1 warning``."""
    numbers = {severity: sum(f.severity is severity for f in findings) for severity in Severity}
    return ", ".join(f"{n} {severity.value}{'s' * (n > 1)}" for severity, n in numbers.items() if n)
