"""The answer of ``rankup drill``: a line for each failure, what to change, and the sum; as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankup.core.columns import aligned
from rankup.drill.drill import Outcome
from rankup.drill.judge import Verdict
from rankup.findings.finding import Finding
from rankup.findings.text import TABLE_WIDTH, text_lines

_HEADINGS = ("failure", "survived", "steps lost", "minutes", "went on", "result", "left behind")


def text(reference: Outcome, verdicts: Sequence[Verdict], checked: Sequence[Finding]) -> str:
    lines = aligned([_HEADINGS, *map(_cells, verdicts)], right=[2, 3])
    changes: dict[Finding, list[str]] = {}
    for verdict in verdicts:
        for change in verdict.changes:
            changes.setdefault(change, []).append(verdict.name)
    for change, names in changes.items():
        lines += ["", f"{', '.join(names)}:", *text_lines([change], TABLE_WIDTH)]
    if checked:
        lines += ["", "what rankup check says of it:", *text_lines(checked, TABLE_WIDTH)]
    return "\n".join([*lines, "", summary(verdicts)])


def _cells(verdict: Verdict) -> tuple[str, ...]:
    outcome = verdict.outcome
    if not outcome.struck:
        return (verdict.name, "not tried", "", "", outcome.not_tried, "", "")
    return (
        verdict.name,
        "yes" if verdict.survived else "no",
        str(verdict.lost),
        f"{verdict.minutes:.1f}",
        verdict.went_on,
        verdict.result,
        ", ".join(verdict.left[:2]) or "nothing",
    )


def summary(verdicts: Sequence[Verdict]) -> str:
    """``7 of 9 survived, 4 of them by themselves; lost 0, 0, 12 steps``."""
    tried = [verdict for verdict in verdicts if verdict.outcome.struck]
    survived = sum(verdict.survived for verdict in tried)
    steps = ", ".join(str(verdict.lost) for verdict in tried)
    missing = f"; {len(verdicts) - len(tried)} not tried" if len(tried) < len(verdicts) else ""
    alone = sum(verdict.survived and not verdict.outcome.again for verdict in tried)
    return f"{survived} of {len(tried)} survived, {alone} of them by themselves; lost {steps or 'no'} steps{missing}"


def as_dict(reference: Outcome, verdicts: Sequence[Verdict], checked: Sequence[Finding]) -> dict[str, Any]:
    return {
        "survived": sum(verdict.survived for verdict in verdicts if verdict.outcome.struck),
        "tried": sum(verdict.outcome.struck for verdict in verdicts),
        "steps": reference.training.last,
        "failures": [_row(verdict) for verdict in verdicts],
        "checked": [finding.as_dict() for finding in checked],
    }


def _row(verdict: Verdict) -> dict[str, Any]:
    outcome = verdict.outcome
    return {
        "failure": verdict.name,
        "not_tried": outcome.not_tried,
        "struck_after": outcome.step,
        "survived": verdict.survived,
        "steps_lost": verdict.lost,
        "minutes_lost": round(verdict.minutes, 2),
        "went_on": verdict.went_on,
        "submitted_again": outcome.again,
        "result": verdict.result,
        "left_behind": list(verdict.left),
        "changes": [finding.as_dict() for finding in verdict.changes],
        "states": outcome.states,
        "records": outcome.records,
        "starts": [
            {"attempt": start.attempt, "from": start.began, "to": start.last, "ended": start.ended}
            for start in outcome.training.starts
        ],
        "seconds": round(outcome.seconds, 1),
    }
