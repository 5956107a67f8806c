"""The findings as a verdict, a culprit, JSON, and lines of text."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rankup.core.registry import load
from rankup.doctor.facts import Facts
from rankup.doctor.judges import JUDGES
from rankup.findings.engine import Source, collect, fails
from rankup.findings.finding import Finding, Severity
from rankup.findings.text import count, text_lines

VERSION = 1


def judge(facts: Facts) -> list[Finding]:
    sources: Mapping[str, Source[Facts]] = {code: load(target) for code, target in JUDGES.items()}  # type: ignore[misc]
    return collect(sources, facts)


@dataclass(frozen=True)
class Examination:
    """Facts, what was found, and how long it took."""

    facts: Facts
    findings: Sequence[Finding]
    seconds: float
    made: float = field(default_factory=time.time)

    @property
    def culprit(self) -> Finding | None:
        """What to look at first: the most severe, roots before what may follow from them."""
        return next((one for one in self.findings if one.severity is not Severity.NOTE), None)

    @property
    def verdict(self) -> str:
        """``broken``, ``doubtful`` (warnings alone) or ``healthy``."""
        if fails(self.findings):
            return "broken"
        return "doubtful" if self.culprit else "healthy"

    def as_dict(self) -> dict[str, Any]:
        culprit = self.culprit
        return {
            "rankup_doctor": VERSION,
            "verdict": self.verdict,
            "culprit": culprit and {"code": culprit.code, "place": culprit.place, "fix": culprit.fix},
            "findings": [finding.as_dict() for finding in self.findings],
            "seconds": round(self.seconds, 2),
            "made": round(self.made),
            "hosts": list(self.facts.hosts),
            "nodes": {str(node): dict(parts) for node, parts in sorted(self.facts.nodes.items())},
            "ranks": [dict(one) for one in self.facts.ranks],
            "launch": dict(self.facts.launch),
            "here": dict(self.facts.here),
        }

    def lines(self, width: int | None = None) -> list[str]:
        return [*text_lines(self.findings, width), self.summary()]

    def summary(self) -> str:
        nodes, ranks = len(self.facts.hosts), len(self.facts.ranks)
        size = f"{nodes} node{'s' * (nodes != 1)}, {ranks} rank{'s' * (ranks != 1)}, {self.seconds:.1f} s"
        if self.culprit is None:
            return f"healthy: {size}"
        place = f"{self.culprit.place}: " if self.culprit.place else ""
        return f"{self.verdict}: {place}{self.culprit.code} ({count(self.findings)}; {size})"
