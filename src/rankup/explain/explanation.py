"""What `rankup explain` says, as data and as lines: a finding with its quotes, its rank, and what followed from it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rankup.explain.events import Quote
from rankup.findings.finding import Confidence, Finding


@dataclass(frozen=True)
class Explanation(Finding):
    """``quotes`` are lines of the logs; ``rules`` those of `rankup check` that find the mistake before the job, by code
    and name; ``cascade`` what followed, and what else the reader has to know."""

    rank: int | None = None
    host: str = ""
    quotes: tuple[Quote, ...] = ()
    rules: tuple[str, ...] = ()
    cascade: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        quotes = [asdict(quote) for quote in self.quotes]
        return {
            **super().as_dict(),
            "quotes": quotes,
            "rules": [rule.split()[0] for rule in self.rules],
            "cascade": list(self.cascade),
        }


def explanation_lines(found: Explanation) -> list[str]:
    """The verdict, the quoted lines, why, hint, the rule, and what followed."""
    lines = [f"{found.message} [{found.code}]", *(f"  {quote}" for quote in found.quotes)]
    hedged = found.confidence is Confidence.LIKELY and found.code != "unknown"
    why = f"probably: {found.why}" if hedged and found.why else found.why
    for label, text in (("why:", why), ("hint:", found.fix)):
        lines += [f"  {label:<7}{text}"] if text else []
    if found.rules:
        label = "rule:" if len(found.rules) == 1 else "rules:"
        lines.append(f"  {label:<7}{', '.join(found.rules)}: `rankup check` looks for this before the job")
    return lines + [f"  {'then:' if i == 0 else '':<7}{text}" for i, text in enumerate(found.cascade)]
