"""One moment of a run, as ``rankup top`` shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rankup.monitor.alerts.alert import Alert
from rankup.monitor.rows import NodeRow, RankRow, node_rows, rank_rows, rate_history
from rankup.monitor.series import RunSeries


@dataclass(frozen=True)
class Frame:
    """``state`` is one word, ``reason`` why it is so; ``step`` the newest step record (``rankup status`` shows it)."""

    name: str
    path: str
    time: float
    state: str
    reason: str
    ended: bool
    step: Mapping[str, Any] | None
    ranks: Sequence[RankRow]
    nodes: Sequence[NodeRow]
    alerts: Sequence[Alert]
    rate: Sequence[float | None]

    @property
    def samples_per_s(self) -> float | None:
        """Of all ranks together, over the last half minute."""
        told = [row.samples_per_s for row in self.ranks if row.samples_per_s is not None]
        return sum(told) if told else None

    @property
    def still(self) -> bool:
        """Whether no rank has finished a step lately."""
        told = [row for row in self.ranks if row.rank is not None]
        return bool(told) and not self.ended and all(row.samples_per_s == 0.0 for row in told)

    @property
    def goes_on(self) -> bool:
        """Whether steps are still made, so that the time left means something."""
        told = [row for row in self.ranks if row.rank is not None]
        over = bool(told) and all(row.phase == "ended" for row in told)
        return not (self.ended or self.still or over)

    @property
    def alerted(self) -> set[int]:
        return {rank for alert in self.alerts if alert.active for rank in alert.ranks}

    def with_ranks(self, rows: Sequence[RankRow]) -> Frame:
        return replace(self, ranks=rows)

    def as_dict(self) -> dict[str, Any]:
        return {
            "run": self.path,
            "name": self.name,
            "time": self.time,
            "state": self.state,
            "reason": self.reason,
            "ended": self.ended,
            "progress": self.step,
            "samples_per_s": self.samples_per_s,
            "ranks": [asdict(row) for row in self.ranks],
            "nodes": [asdict(row) for row in self.nodes],
            "alerts": [alert.as_dict() for alert in self.alerts],
        }


def frame(
    run: RunSeries,
    now: float,
    *,
    name: str,
    path: str,
    state: str,
    reason: str,
    ended: bool,
    alerts: Sequence[Alert],
    width: int,
) -> Frame:
    """``width``: how many values the histories have. Of a run that has ended, the moment of its last record."""
    at = now
    if ended and (times := run.times()) is not None:
        at = times[1]
    return Frame(
        name=name,
        path=path,
        time=now,
        state=state,
        reason=reason,
        ended=ended,
        step=run.step,
        ranks=rank_rows(run, at, width),
        nodes=node_rows(run, at),
        alerts=alerts,
        rate=rate_history(run, at, width),
    )
