"""Asks all sources of symptoms every few seconds, and debounces what they see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from rankup.monitor.alerts.alert import Alert, Symptom, alert_of
from rankup.monitor.alerts.idle_gpus import idle_gpus
from rankup.monitor.alerts.room import disk_full_soon, memory_near_limit
from rankup.monitor.alerts.slow_ranks import loader_bound, stragglers
from rankup.monitor.alerts.standstill import standstill
from rankup.monitor.series import RunSeries

EVERY = 5.0  # seconds between two looks
GAP = 20.0  # seconds that a symptom may be away and is still the same; an alert ends after them
_MOST_PAST = 50

Source = Callable[[RunSeries, float], Iterable[Symptom]]
SOURCES: Mapping[str, Source] = {
    "no-step": standstill,
    "loader-bound": loader_bound,
    "straggler": stragglers,
    "gpu-idle": idle_gpus,
    "memory-near-limit": memory_near_limit,
    "disk-full-soon": disk_full_soon,
}


@dataclass
class _Seen:
    symptom: Symptom
    since: float
    last: float
    hours_lost: float = 0.0


class AlertWatch:
    """The alerts of one run. ``look`` may be called with any times that grow; it looks at all moments between."""

    def __init__(self, sources: Mapping[str, Source] = SOURCES) -> None:
        self._sources = sources
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._past: list[Alert] = []
        self._looked: float | None = None

    def look(self, run: RunSeries, now: float) -> list[Alert]:
        """The alerts at ``now``: active ones first, those that have cost most; then those that are over."""
        if self._looked is None:
            times = run.times()
            if times is None:
                return []
            self._looked = min(times[0], now)
        while self._looked + EVERY <= now:
            self._looked += EVERY
            self._look(run, self._looked)
        unit = "GPU" if run.on_gpus() else "process"
        active = [
            alert_of(one.symptom, one.since, one.hours_lost, unit)
            for one in self._seen.values()
            if one.last - one.since >= one.symptom.hold
        ]
        active.sort(key=lambda one: -one.hours_lost)
        return [*active, *reversed(self._past)]

    def end(self, run: RunSeries) -> list[Alert]:
        """The alerts of a run that has ended: all are over."""
        times = run.times()
        found = self.look(run, times[1]) if times is not None else []
        return [one.ended_at(times[1]) if times is not None and one.active else one for one in found]

    def _look(self, run: RunSeries, now: float) -> None:
        for source in self._sources.values():
            for symptom in source(run, now):
                began = now if symptom.began is None else symptom.began
                seen = self._seen.setdefault(symptom.id, _Seen(symptom, began, began))
                seen.hours_lost += symptom.lost * (now - seen.last) / 3600
                seen.symptom, seen.last = symptom, now
        for key, seen in list(self._seen.items()):
            if now - seen.last > GAP:
                del self._seen[key]
                if seen.last - seen.since >= seen.symptom.hold:
                    unit = "GPU" if run.on_gpus() else "process"
                    alert = alert_of(seen.symptom, seen.since, seen.hours_lost, unit)
                    self._past = [*self._past, alert.ended_at(seen.last)][-_MOST_PAST:]
