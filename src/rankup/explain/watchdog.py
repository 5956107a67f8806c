"""A collective that timed out: which rank did not come to it. Taken from what NCCL's watchdogs of all ranks say."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

from rankup.explain.events import Quote, Stuck

_CAUGHT = re.compile(
    r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<seq>\d+), OpType=(?P<op>\w+)"
)
_STATE = re.compile(r"last enqueued (?:NCCL )?work: (?P<enqueued>-?\d+)")
_GROUP = re.compile(r"\[PG (?:ID )?(?P<group>\d+)")
_RANK = re.compile(r"\[(?:PG [^\]]*?)?Rank (\d+)\]")


def stuck_of(text: str, rank: int | None, quote: Quote) -> Stuck | None:
    """What one line of a watchdog says; ``rank`` is that of the stream, else the line names one."""
    caught, state = _CAUGHT.search(text), _STATE.search(text)
    if not caught and not state:
        return None
    named = _RANK.search(text)
    number = rank if rank is not None else int(named[1]) if named else None
    if number is None:
        return None
    group = _GROUP.search(text)
    return Stuck(
        number,
        int(caught["seq"]) if caught else None,
        caught["op"] if caught else "",
        int(state["enqueued"]) if state else None,
        group["group"] if group else "",
        quote,
    )


def behind(said: Sequence[Stuck], ranks: Collection[int]) -> tuple[list[int], str]:
    """(the ranks that are behind or absent, what the messages show). ``ranks``: all that the logs name."""
    first: dict[int, Stuck] = {}
    for stuck in said:
        if stuck.seq is not None:
            first.setdefault(stuck.rank, stuck)
    if not first:
        return [], ""
    known = {*ranks, *range(max(first) + 1)}
    absent = sorted(known - set(first))
    numbers = {rank: stuck.seq or 0 for rank, stuck in first.items()}
    furthest = max(numbers.values())
    late = sorted(rank for rank, number in numbers.items() if number < furthest)
    op = next(stuck.op for stuck in first.values() if stuck.seq == furthest)
    if late and 2 * len(late) <= len(first):
        where = ", ".join(f"rank {rank} at {numbers[rank]}" for rank in late[:4])
        return late, f"the others wait in collective {furthest} ({op}); {where}"
    if absent and 2 * len(absent) <= len(known):  # of an excerpt of one rank nobody knows more
        return (
            absent,
            f"{ranks_text(first)} waited in collective {furthest} ({op}), and {ranks_text(absent)} did not report it",
        )
    ops = Counter(stuck.op for stuck in first.values())
    if len(ops) > 1:
        rare = min(ops, key=lambda name: ops[name])
        odd = sorted(rank for rank, stuck in first.items() if stuck.op == rare)
        others = ", ".join(f"{name} on {n} ranks" for name, n in ops.most_common())
        return odd, f"the ranks called different collectives as number {furthest}: {others}"
    lag = _by_enqueued(said)
    if lag:
        return lag
    return [], (
        f"{ranks_text(first)}, all that report it, waited in collective {furthest} ({op}): "
        "a rank that is not in this log did not come to it, or came too late; else the network or a GPU hangs"
    )


def _by_enqueued(said: Sequence[Stuck]) -> tuple[list[int], str] | None:
    """The rank that had begun fewer collectives than the others of the same group."""
    groups: dict[str, dict[int, int]] = defaultdict(dict)
    for stuck in said:
        if stuck.enqueued is not None:
            groups[stuck.group].setdefault(stuck.rank, stuck.enqueued)
    for begun in groups.values():
        most = max(begun.values())
        late = sorted(rank for rank, number in begun.items() if number < most)
        if late and 2 * len(late) < len(begun):
            return late, f"the others had begun collective {most}, " + ", ".join(
                f"rank {r} only {begun[r]}" for r in late[:4]
            )
    return None


def ranks_text(ranks: Collection[int]) -> str:
    """``rank 3``, ``ranks 0, 1 and 5``, ``ranks 0-63``."""
    numbers = sorted(ranks)
    parts: list[str] = []
    begin = previous = numbers[0]
    for number in [*numbers[1:], numbers[-1] + 2]:
        if number != previous + 1:
            between = "-" if previous > begin + 1 else ", "
            parts.append(str(begin) if begin == previous else f"{begin}{between}{previous}")
            begin = number
        previous = number
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(parts[:8])}{', …' if len(parts) > 8 else ''}"
