"""Fair measurement: contenders take turns round by round, and the result is the median of their ratios by round.

Other load of the machine then affects all contenders equally. Each round starts with the next contender. The spread of
a ratio is the middle half of the ratios within each round.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from benchmarks.contender import Contender

Rounds = dict[str, list[float]]  # contender → one value per round, in the bench's unit


@dataclass(frozen=True)
class Claim:
    """``factor`` × the median over rounds of ``contender`` / ``against`` (or of ``contender``), and its target.

    A claim may have no target: then its value is only printed.
    """

    text: str
    contender: str
    against: str | None
    target: float | None
    at_most: bool
    factor: float = 1.0

    def verdict(self, rounds: Rounds) -> dict[str, Any] | None:
        """claim, value, low and high (quartiles over rounds), target, met; None if a contender did not run."""
        if self.contender not in rounds or (self.against is not None and self.against not in rounds):
            return None
        mine = rounds[self.contender]
        other = rounds[self.against] if self.against is not None else [1.0] * len(mine)
        ratios = [self.factor * a / b for a, b in zip(mine, other, strict=True)]
        value, (low, high) = statistics.median(ratios), middle_half(ratios)
        found: dict[str, Any] = {"claim": self.text, "value": value, "low": low, "high": high}
        if self.target is None:
            return {**found, "target": None, "met": None}
        met = value <= self.target if self.at_most else value >= self.target
        return {**found, "target": f"{'≤' if self.at_most else '≥'} {self.target:g}", "met": met}


@dataclass(frozen=True)
class Result:
    """The result of one bench. ``settings`` describe the work; ``notes`` are printed below the table; ``details`` are
    in the JSON alone."""

    name: str
    title: str
    unit: str
    settings: dict[str, Any]
    rounds: Rounds
    claims: list[Claim]
    notes: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)


def middle_half(values: list[float]) -> tuple[float, float]:
    """First and third quartile."""
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def take_turns(measures: Mapping[str, Callable[[], float]], rounds: int) -> Rounds:
    """Each measure once per round."""
    names = list(measures)
    values: Rounds = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            values[name].append(measures[name]())
    return values


def contest(
    bench: str,
    names: Iterable[str],
    settings: Mapping[str, Any],
    *,
    threads: int,
    rounds: int,
    processes: int,
    variables: Mapping[str, str] | None = None,
) -> Rounds:
    """Seconds per round. Each contender has a process of its own; the first round is a warm-up.

    The contest is repeated with fresh processes, ``processes`` times in all: two processes of the same program can
    differ by some percent for all their life, by their memory layout. ``variables`` are added to their environment.
    """
    seconds: Rounds = {name: [] for name in names}
    for _ in range(processes):
        with ExitStack() as stack:
            contenders = {
                name: stack.enter_context(Contender(bench, name, settings, threads, variables))
                for name in seconds
            }
            measures = {name: contender.round for name, contender in contenders.items()}
            take_turns(measures, 1)
            for name, values in take_turns(measures, rounds).items():
                seconds[name] += values
    return seconds
