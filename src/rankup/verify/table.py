"""What ``rankup verify`` prints: a line per scenario, and under it what is wrong, by what evidence, and the cure."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from rankup.core.findings import Finding, Severity
from rankup.verify.verify import Scenario

_WIDTH = 105
_HEADINGS = ("what", "processes", "attempts", "kills", "steps compared", "verdict")
_LEFT = ("what", "verdict")


def text(scenarios: Sequence[Scenario], planned_kills: int) -> str:
    """The table, the findings, and the last word."""
    cells = [
        (s.what, s.processes, str(s.attempts), str(s.kills), str(s.steps_compared), s.verdict)
        for s in scenarios
    ]
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *cells, strict=True)]
    lines = [_line(row, widths) for row in (_HEADINGS, *cells)]
    for scenario in scenarios:
        if scenario.finding is not None:
            lines += ["", *_drawn(scenario, scenario.finding)]
    missed = sum(planned_kills - s.kills for s in scenarios if s.what == "killed and resumed")
    if missed:
        lines += [
            "",
            f"note: the training ended before {missed} of {planned_kills} kills; --steps may be too small",
        ]
    if names := [name for scenario in scenarios for name in scenario.not_compared]:
        lines += [
            "",
            f"note: not compared, since uninterrupted runs differ in it, as a clock does: {', '.join(names)}",
        ]
    return "\n".join([*lines, "", _last_word(scenarios)])


def as_dict(scenarios: Sequence[Scenario], folder: str) -> dict[str, Any]:
    rows = [
        {
            **{key: value for key, value in vars(scenario).items() if key not in ("finding", "distance")},
            "finding": scenario.finding.as_dict() if scenario.finding else None,
            "distance": vars(scenario.distance) if scenario.distance else None,
        }
        for scenario in scenarios
    ]
    return {"proved": proved(scenarios), "scenarios": rows, "folder": folder}


def proved(scenarios: Sequence[Scenario]) -> bool:
    return all(scenario.proved for scenario in scenarios)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.ljust(width) if heading in _LEFT else cell.rjust(width)
        for cell, width, heading in zip(row, widths, _HEADINGS, strict=True)
    ]
    return "  ".join(cells).rstrip()


def _drawn(scenario: Scenario, finding: Finding) -> list[str]:
    what = finding.severity.value
    parts = [(f"{what} in “{scenario.what}”", f"{finding.message} [{finding.code}]")]
    if finding.place:
        parts.append(("where", finding.place))
    parts += [("why", finding.why), ("mend", finding.fix)]
    lines = []
    for label, said in parts:
        lines += wrap(f"{label}: {said}", _WIDTH, subsequent_indent="  ", break_long_words=False)
    return lines


def _last_word(scenarios: Sequence[Scenario]) -> str:
    if not proved(scenarios):
        return "differs: this training is not the same when it is interrupted or repeated"
    if any(s.finding is not None and s.finding.severity is Severity.NOTE for s in scenarios):
        return "proved, but for what was not judged"
    return (
        "proved: the same model, bit for bit"
        if all(s.verdict == "identical" for s in scenarios)
        else "proved: the same model, but for the rounding of other numbers of processes"
    )
