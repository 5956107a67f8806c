"""A symptom is what one look sees; an alert is a symptom that lasts. Their limits, and ranks in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rankup.findings.finding import Finding, Severity
from rankup.findings.table import read_limits
from rankup.monitor.series import RankSeries

#: Alert → its limits.
LIMITS = read_limits(Path(__file__).with_name("limits.toml"))


@dataclass(frozen=True)
class Symptom:
    """``key`` tells symptoms of one code apart: a rank, a GPU, a node. ``lost``: how many processors do nothing useful
    because of it, such as 3.2 of 4."""

    code: str
    key: str
    message: str
    fix: str
    ranks: tuple[int, ...] = ()
    lost: float = 0.0
    hold: float = 30.0  # seconds that it must last
    began: float | None = None  # if it is known to have begun before it is seen

    @property
    def id(self) -> tuple[str, str]:
        return self.code, self.key


@dataclass(frozen=True)
class Alert:
    """``since`` and ``until`` in epoch seconds, None while it is active; ``hours_lost`` are of a ``unit``, which is GPU
    or process."""

    finding: Finding
    ranks: tuple[int, ...]
    since: float
    until: float | None
    hours_lost: float
    unit: str

    @property
    def active(self) -> bool:
        return self.until is None

    @property
    def cost(self) -> str:
        """``1.2 GPU-hours lost``; "" if it is next to nothing."""
        return "" if self.hours_lost < 0.005 else f"{self.hours_lost:.2g} {self.unit}-hours lost"

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.finding.as_dict(),
            "ranks": list(self.ranks),
            "since": self.since,
            "until": self.until,
            "active": self.active,
            "hours_lost": round(self.hours_lost, 4),
            "unit": self.unit,
        }

    def ended_at(self, time: float) -> Alert:
        return replace(self, until=time)


def alert_of(symptom: Symptom, since: float, hours_lost: float, unit: str) -> Alert:
    finding = Finding(symptom.code, Severity.WARNING, symptom.message, fix=symptom.fix)
    return Alert(finding, symptom.ranks, since, None, hours_lost, unit)


def rank_names(ranks: Sequence[RankSeries]) -> str:
    """``rank 1 on n2``, ``ranks 0-3, 7 on n1``, ``ranks 0, 4 on 2 nodes``."""
    numbers = sorted(one.rank for one in ranks)
    hosts = sorted({one.host for one in ranks})
    where = (
        f" on {hosts[0]}" if len(hosts) == 1 and hosts[0] else f" on {len(hosts)} nodes" if hosts[1:] else ""
    )
    return f"rank{'s' * (len(numbers) > 1)} {ranges(numbers)}{where}"


def ranges(numbers: Sequence[int]) -> str:
    """``0-3, 7``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(one[0]) if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in parts)
