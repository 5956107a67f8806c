"""The columns of the table of ranks: which fit into a width, in which order rows come, which rows are shown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from rankup.cli.output.top.sparkline import sparkline
from rankup.core.units import rate
from rankup.errors import RankupError
from rankup.monitor.rows import RankRow

_GIB = 1 << 30
SILENT = 15.0  # seconds: records come at least every 10


@dataclass(frozen=True)
class Column:
    """``importance``: the greater, the longer it is shown in a narrow terminal. ``width``: at least so wide."""

    name: str
    heading: str
    width: int
    importance: int
    text: Callable[[RankRow, int], str]
    left: bool = False


def _plain(value: float | None, form: str = "{:.0f}") -> str:
    return "-" if value is None else form.format(value)


def seconds(value: float | None) -> str:
    """``312 ms``, ``1.25 s``, ``75 s``."""
    if value is None:
        return "-"
    if value < 0.0995:
        return f"{1000 * value:.1f} ms"
    return (
        f"{1000 * value:.0f} ms" if value < 0.9995 else f"{value:.2f} s" if value < 10 else f"{value:.0f} s"
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * min(1.0, value):.0f}%"


def _memory(row: RankRow, width: int) -> str:
    if row.memory is None:
        return "-"
    used = f"{row.memory / _GIB:.1f}"
    if row.memory_total is None:
        return used
    whole = row.memory_total / _GIB
    return f"{used}/{whole:.0f}" if whole >= 9.95 else f"{used}/{whole:.1f}"


def _memory_share(row: RankRow, width: int) -> str:
    return _share(None if row.memory is None or not row.memory_total else row.memory / row.memory_total)


def waits(row: RankRow) -> float | None:
    """The share of a step in which the rank waits for others; the optimizer is in it."""
    if row.own_s is None or not row.step_s:
        return None
    return max(0.0, 1 - row.own_s / row.step_s)


_PHASES = {"data": "data", "step": "step", "arrived": "sync", "after-epoch": "after epoch", "ended": "ended"}


def doing(row: RankRow, width: int = 0) -> str:
    """What the rank does, and for how long, if that is long."""
    if row.rank is None:
        return "no rank"
    word = _PHASES.get(row.phase, row.phase)
    if row.phase == "ended":
        return word
    if row.silent_s is not None and row.silent_s > SILENT:
        return f"silent {row.silent_s:.0f} s"
    return f"{word} {row.phase_s:.0f} s" if row.phase_s is not None and row.phase_s >= 5 else word


def _history(row: RankRow, width: int) -> str:
    most = 100.0 if row.gpu is not None else max([100.0, *(one for one in row.history if one is not None)])
    return sparkline(row.history, width, most)


def _host(row: RankRow, width: int) -> str:
    return row.host if len(row.host) <= width else row.host[: width - 1] + "…"


COLUMNS = (
    Column("rank", "rank", 4, 100, lambda row, _: "-" if row.rank is None else str(row.rank)),
    Column("host", "host", 8, 50, _host, left=True),
    Column("gpu", "gpu", 3, 40, lambda row, _: _plain(row.gpu)),
    Column("use", "use", 5, 95, lambda row, _: "-" if row.utilization is None else f"{row.utilization:.0f}%"),
    Column("history", "", 10, 60, _history, left=True),
    Column("mem", "mem", 4, 90, _memory_share),
    Column("memory", "GiB", 9, 30, _memory),
    Column("power", "W", 4, 35, lambda row, _: _plain(row.power)),
    Column("temperature", "°C", 3, 34, lambda row, _: _plain(row.temperature)),
    Column("step", "step", 7, 93, lambda row, _: seconds(row.step_s)),
    Column("own", "own", 7, 20, lambda row, _: seconds(row.own_s)),
    Column(
        "samples",
        "smp/s",
        7,
        70,
        lambda row, _: "-" if row.samples_per_s is None else rate(row.samples_per_s),
    ),
    Column("data", "data", 4, 92, lambda row, _: _share(row.data)),
    Column("wait", "wait", 4, 80, lambda row, _: _share(waits(row))),
    Column("loss", "loss", 7, 65, lambda row, _: _plain(row.loss, "{:.4g}")),
    Column("doing", "doing", 10, 91, doing, left=True),
)

# What ``s`` goes through: name → the value by which rows are sorted, the greatest first (ranks from 0).
SORTS: dict[str, Callable[[RankRow], float | None]] = {
    "rank": lambda row: None,
    "step": lambda row: row.step_s,
    "own": lambda row: row.own_s,
    "data": lambda row: row.data,
    "use": lambda row: row.utilization,
    "mem": lambda row: row.memory,
    "silent": lambda row: row.silent_s,
}


def columns_that_fit(rows: Sequence[RankRow], width: int) -> list[tuple[Column, int]]:
    """The most important columns of those that tell something, with their widths; what is left goes to two of them."""
    told = [
        column
        for column in COLUMNS
        if column.importance > 90 or any(column.text(row, column.width).strip(" -▁") for row in rows)
    ]
    wanted = {column.name: column.width for column in told}
    if len({row.host for row in rows}) < 2 and width < 120:
        wanted.pop("host", None)  # the same in all rows, and it is in the line of the node
    chosen: list[Column] = []
    left = width
    for column in sorted(told, key=lambda one: -one.importance):
        if column.name in wanted and wanted[column.name] + 1 <= left + (not chosen):
            chosen.append(column)
            left -= wanted[column.name] + 1
    names = {column.name for column in chosen}
    hosts = max((len(row.host) for row in rows), default=0)
    for name, most in (("doing", 14), ("host", hosts), ("history", 60)):
        if name in names and left > 0:
            more = max(0, min(left, most - wanted[name]))
            wanted[name] += more
            left -= more
    return [(column, wanted[column.name]) for column in COLUMNS if column.name in names]


def line(row: RankRow, columns: Sequence[tuple[Column, int]]) -> list[str]:
    """The cells of a row, each as wide as its column."""
    cells = []
    for column, width in columns:
        cell = column.text(row, width)[:width]
        cells.append(cell.ljust(width) if column.left else cell.rjust(width))
    return cells


def headings(columns: Sequence[tuple[Column, int]]) -> str:
    return " ".join(
        column.heading.ljust(width) if column.left else column.heading.rjust(width)
        for column, width in columns
    )


def in_order(rows: Sequence[RankRow], sort: str) -> list[RankRow]:
    """``rows`` by one of ``SORTS``; what does not tell it comes last."""
    value = SORTS[sort]

    def key(row: RankRow) -> tuple[float, float]:
        told = value(row)
        return (float("inf") if told is None else -told), -1 if row.rank is None else row.rank

    return sorted(rows, key=key)


def filtered(rows: Sequence[RankRow], pattern: str, alerted: Collection[int] = ()) -> list[RankRow]:
    """The rows of these ranks (``0-3,7``), of hosts with this in their names, or those that an alert names (``!``)."""
    pattern = pattern.strip()
    if not pattern:
        return list(rows)
    if pattern == "!":
        return [row for row in rows if row.rank in alerted]
    if set(pattern) <= set("0123456789-, "):
        wanted = parse_ranks(pattern)
        return [row for row in rows if row.rank in wanted]
    return [row for row in rows if pattern in row.host]


def parse_ranks(text: str) -> set[int]:
    """The ranks of ``0-3,7``; raises RankupError for anything else."""
    ranks: set[int] = set()
    for part in filter(None, (one.strip() for one in text.split(","))):
        low, dash, high = (one.strip() for one in part.partition("-"))
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise RankupError(
                "bad-filter",
                f"{text!r} names no ranks",
                context="--filter",
                hint="ranks such as 0-3,7, a part of a host's name, or ! for the ranks that an alert names",
            )
        ranks |= set(range(int(low), min(int(high) if dash else int(low), 1 << 20) + 1))
    return ranks
