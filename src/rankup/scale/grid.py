"""Which runs a study consists of, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankup.core.arrays import parse_numbers
from rankup.errors import RankupError


@dataclass(frozen=True)
class Trial:
    """One run of a study. ``processes`` is per node; ``repeat`` counts from 1, and 0 is the warm-up."""

    processes: int
    repeat: int


def parse_process_counts(text: str) -> list[int]:
    """``"1,2,4"`` → ``[1, 2, 4]``, the fewest first: they are the baseline."""
    try:
        counts = parse_numbers(text)
    except ValueError as word:
        raise RankupError(
            "bad-process-count",
            f"{str(word)!r} is not a number of processes",
            context=f"--nproc-per-node {text}",
            hint="numbers from 1 with commas between them, such as 1,2,4",
        ) from None
    repeated = sorted({count for count in counts if counts.count(count) > 1})
    if repeated:
        raise RankupError(
            "repeated-process-count",
            f"{count_of(repeated[0])}: given more than once",
            context=f"--nproc-per-node {text}",
            hint="each number once; --repeats says how often each of them runs",
        )
    if len(counts) < 2:
        raise RankupError(
            "nothing-to-compare",
            "a speed-up needs two numbers of processes or more",
            context=f"--nproc-per-node {text}",
            hint="--nproc-per-node 1,2 compares one process with two; `rankup train` runs a single one",
        )
    return sorted(counts)


def trials(processes: Sequence[int], repeats: int) -> list[Trial]:
    """A warm-up of each, then ``repeats`` rounds, every other one backwards, so that drift hits all alike."""
    if repeats < 1:
        raise RankupError("bad-repeats", f"--repeats is {repeats}", hint="1 or more; 3 or more tell a spread")
    warm_ups = [Trial(count, 0) for count in processes]
    rounds = [
        Trial(count, repeat)
        for repeat in range(1, repeats + 1)
        for count in (processes if repeat % 2 else reversed(processes))
    ]
    return warm_ups + rounds


def count_of(processes: int) -> str:
    """``1 process``, ``2 processes``."""
    return f"{processes} process" + ("es" if processes != 1 else "")
