"""Where a run is interrupted: chosen at random, so that no place is left out, and from a seed, so that it can be again.

The words are those of ``runtime/interruption.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

KINDS = ("step", "moment", "save")
# About as many changes on disk as one save of one process makes: the kill falls into the first save, or the second.
CHANGES_PER_SAVE = 24


@dataclass(frozen=True)
class Kill:
    """``words`` for the run, ``said`` for people."""

    words: str
    said: str


def kinds(random: Random, kills: int) -> list[str]:
    """One for each kill: every kind about as often, in an order by chance."""
    chosen: list[str] = []
    while len(chosen) < kills:
        chosen += random.sample(KINDS, len(KINDS))
    return chosen[:kills]


def choose_kill(
    random: Random, kind: str, *, left: int, steps_left: int, processes: int, step_s: float
) -> Kill:
    """A point for the next attempt. ``left`` kills are to come, this one included, and ``steps_left`` are untrained:
    each takes its share of them at most, so that all take place. ``step_s``: seconds that a step takes."""
    share, rank = max(1, steps_left // left), random.randrange(processes)
    if kind == "save":
        change = random.randint(1, CHANGES_PER_SAVE)
        return Kill(f"save {change} 0", f"before change {change} on disk of its saves")
    if kind == "moment":
        at, seconds = random.randint(1, max(1, share - 1)), random.uniform(0, 2 * step_s)
        return Kill(f"moment {at} {rank} {seconds:.4f}", f"{seconds * 1000:.0f} ms after its step {at}")
    at = random.randint(1, share)
    return Kill(f"step {at} {rank}", f"after its step {at}")


def choose_stops(random: Random, steps: int, worlds: int) -> list[int]:
    """The step after which each number of processes but the last stops: increasing, each before the last step."""
    return sorted(random.sample(range(1, steps), worlds - 1))
