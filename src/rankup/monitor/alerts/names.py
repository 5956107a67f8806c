"""Ranks in words."""

from __future__ import annotations

from collections.abc import Sequence

from rankup.monitor.series import RankSeries


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
