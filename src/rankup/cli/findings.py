"""Findings as text: to stderr, most severe first, each with its why and its fix."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rankup.cli.console import paint
from rankup.errors import RankupError
from rankup.findings.finding import Finding, Severity

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def draw_findings(findings: Sequence[Finding]) -> None:
    for finding in sorted(findings, key=lambda f: list(Severity).index(f.severity)):
        head = paint(f"{finding.severity.value}: ", _COLOURS[finding.severity], sys.stderr)
        print(f"{head}{finding.message} [{finding.code}]", file=sys.stderr)
        for label, text in (("where:", finding.place), ("why:", finding.why), ("fix:", finding.fix)):
            if text:
                print(f"  {label:<7}{text}", file=sys.stderr)


def refuse_errors(findings: Sequence[Finding]) -> None:
    """Raises ``RankupError``, with exit code 1, where one of them is an error."""
    wrong = [finding.message for finding in findings if finding.severity is Severity.ERROR]
    if wrong:
        raise RankupError(
            "bad-job",
            f"the job was not submitted: {'; '.join(wrong)}",
            hint="mend it, or submit it all the same with --force",
            exit_code=1,
        )
