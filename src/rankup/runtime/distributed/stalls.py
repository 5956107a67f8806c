"""When a loop has finished no step for so long that somebody should hear of it."""

from __future__ import annotations

FACTOR = 10.0  # times the longest step until then: a body may evaluate now and then
FIRST = 4.0  # times the wait for any other step: the first one may compile


class Stalls:
    """Of the loops of one process, looked at every few seconds. ``wait_s``: at least so long takes a stall. ``now`` is
    the time of the monotonic clock."""

    def __init__(self, wait_s: float, now: float) -> None:
        self._wait_s = wait_s
        self._steps: int | None = None
        self._since = now
        self._longest = 0.0
        self._told = False

    def seconds(self, steps: int | None, now: float) -> float | None:
        """For how long the step in progress has stalled, if it has and nobody has told. ``steps``: how many the loop
        has finished; None between the steps of two epochs, where a script may do what it likes."""
        if steps != self._steps:
            if steps is not None:
                self._longest = max(self._longest, now - self._since)
            self._steps, self._since, self._told = steps, now, False
        if steps is None:
            self._since = now
            return None
        enough = max(self._wait_s, FACTOR * self._longest) if steps else FIRST * self._wait_s
        waited = now - self._since
        return waited if waited >= enough and not self._told else None

    def told(self) -> None:
        """The stall in progress, if there is one, needs no message any more."""
        self._told = True
