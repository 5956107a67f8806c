"""From a table to curves: the same quantity on different numbers of devices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rankup.scale.published import quantities as q
from rankup.scale.published.columns import Column, columns_of, has
from rankup.scale.published.documents import Block, Document
from rankup.scale.published.entries import Entry, entries_of, resolved
from rankup.scale.published.page import Surroundings, surroundings

_QUANTITY_WORDS = frozenset(
    [
        "time",
        "times",
        "s",
        "sec",
        "seconds",
        "min",
        "minutes",
        "h",
        "hours",
        "speed",
        "up",
        "speedup",
        "efficiency",
        "throughput",
        "training",
        "train",
        "total",
        "scaling",
        "strong",
        "weak",
        "images",
        "img",
        "samples",
        "tokens",
        "per",
        "epoch",
        "in",
        "of",
        "the",
        "x",
        "average",
        "mean",
        "median",
    ]
)
_COUNTED = ("devices", "per-node", "nodes", "cores", "name")


@dataclass(frozen=True)
class Curve:
    """``metric``: time, rate, or "" if only ratios are printed. ``per`` as in ``Column``. ``line`` from 1. ``group``:
    which rows (a model, a GPU); ``column``: the header of the metric where a table has several.
    """

    document: str
    line: int
    group: str
    column: str
    metric: str
    per: str
    entries: Sequence[Entry]
    around: Surroundings
    weak: bool = False

    @property
    def place(self) -> str:
        """The rows and the column."""
        return self._where(self.group, self.column)

    @property
    def rows(self) -> str:
        """The rows, for what is true of them in every column."""
        return self._where(self.group)

    def _where(self, *words: str) -> str:
        title = ", ".join(word for word in words if word)
        return f"{self.document}:{self.line}" + (f" ({title})" if title else "")


def curves_of(document: Document) -> list[Curve]:
    return [
        *(curve for table in document.tables for curve in _of_table(document, table)),
        *_of_sections(document),
    ]


def _of_sections(document: Document) -> list[Curve]:
    """Tables of the same form, one for each number of devices, which is in their heading or caption."""
    forms: dict[tuple[str, ...], list[tuple[Block, Surroundings, tuple[str, int]]]] = {}
    for table in document.tables:
        columns, around = columns_of(table.rows), surroundings(document, table)
        found = q.devices(around.caption)
        if found and found[0] == "gpu" and not has(columns, *_COUNTED):
            forms.setdefault(table.rows[0], []).append((table, around, found))
    curves = []
    for header, tables in forms.items():
        if len({found for _, _, found in tables}) < 2:
            continue
        rows = [
            (*row, f"{found[1]} GPU{'s' * (found[1] > 1)} {q.precision(around.caption) or ''}".strip())
            for table, around, found in tables
            for row in table.rows[1:]
        ]
        first = tables[0][0]
        together = Block("table", first.line, rows=((*_as_groups(header, rows), "configuration"), *rows))
        curves += _of_table(document, together, tables[0][1])
    return curves


def _as_groups(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns that are not a quantity tell which rows belong together: they are called a model."""
    columns = columns_of([[*header, "configuration"], *rows])
    return [f"model {c.header}" if c.role in ("other", "group") else c.header for c in columns[: len(header)]]


def _of_table(document: Document, table: Block, around: Surroundings | None = None) -> list[Curve]:
    around = around or surroundings(document, table)
    written = _two_in_one(table.rows)
    rows = _upright(written)
    columns = columns_of(rows)
    if rows is not written:
        columns = _named_by_context(columns, rows, table, around)
    if not has(columns, *_COUNTED):
        return []
    metrics: list[Column | None] = [column for column in columns if column.role in ("time", "rate")]
    ratios = [column for column in columns if column.role in ("speedup", "efficiency")]
    if not metrics and not ratios:
        return []
    found = []
    for metric in metrics or [None]:
        mine = [c for c in ratios if metric is None or _belongs(c, metric, [m for m in metrics if m])]
        for group, entries in entries_of(rows[1:], columns, metric, mine, around).items():
            counts = {(e.kind, e.devices) for e in entries}
            if len(counts) < 2 or all(
                e.value is None and e.speedup is None and e.efficiency is None for e in entries
            ):
                continue
            column = metric.header if metric is not None and len(metrics) > 1 else ""
            words = ", ".join(word for word in group if word)
            kind, per = (metric.role, metric.per) if metric is not None else ("", "")
            found.append(
                Curve(
                    *(document.name, table.line, words, column, kind, per, resolved(entries), around),
                    weak=_is_weak(columns, per, resolved(entries), around),
                )
            )
    return found


def _is_weak(columns: Sequence[Column], per: str, entries: Sequence[Entry], around: Surroundings) -> bool:
    """Weak scaling: the text or a header says so, or the time of a step is of a batch that grows with the devices."""
    if around.weak or any("weak" in c.header.lower() for c in columns if c.role in ("speedup", "efficiency")):
        return True
    local = {entry.local_batch for entry in entries}
    whole = {entry.global_batch for entry in entries}
    return per == "step" and None not in local and len(local) == 1 and len(whole) > 1


def _two_in_one(rows: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    """A column ``Nodes (GPUs)`` with cells ``2 (8)`` as two columns."""
    for n, header in enumerate(rows[0]):
        names = re.fullmatch(r"(.*?)\s*[(\[/]\s*(.*?)\s*[)\]]?", header.strip())
        cells = [re.fullmatch(r"([\d,]+)\s*[(\[/]\s*([\d,]+)\s*[)\]]?", row[n].strip()) for row in rows[1:]]
        if not (names and names[1] and names[2] and all(cells)):
            continue
        split = [(names[1], names[2]), *((cell[1], cell[2]) for cell in cells if cell)]
        return tuple((*row[:n], *parts, *row[n + 1 :]) for row, parts in zip(rows, split, strict=True))
    return _ratio_in_brackets(rows)


def _ratio_in_brackets(rows: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    """``Time (speed-up)`` with cells ``27 s (3.7x)``, and ``Speed-up`` with cells ``3.7x (93%)``, as two columns."""
    for n, header in enumerate(rows[0]):
        named = re.fullmatch(r"(.*?)\s*\(\s*(.*?)\s*\)", header.strip())
        cells = [re.fullmatch(r"([^()]+?)\s*\(\s*([^()]+?)\s*\)", row[n].strip()) for row in rows[1:]]
        found = [cell for cell in cells if cell]
        told = named is not None and columns_of([[named[2]], ["1"]])[0].role in ("speedup", "efficiency")
        percents = (
            all(cell[2].endswith("%") for cell in found)
            and columns_of([[header], ["1"]])[0].role == "speedup"
        )
        if len(found) < 2 or not (told or percents):
            continue
        names = (named[1], named[2]) if named is not None and told else (header, "efficiency")
        parts = [
            names,
            *(
                (cell[1], cell[2]) if cell else (row[n], "")
                for cell, row in zip(cells, rows[1:], strict=True)
            ),
        ]
        return tuple((*row[:n], *part, *row[n + 1 :]) for row, part in zip(rows, parts, strict=True))
    return rows


def _belongs(ratio: Column, metric: Column, metrics: Sequence[Column]) -> bool:
    """Whether a column of ratios may be about ``metric``: not if it shares more words with another one."""
    if not q.same_precision(ratio.precision, metric.precision):
        return False
    shared = {m.index: len(_words(ratio) & _words(m)) for m in metrics}
    return shared[metric.index] == max(shared.values())


def _words(column: Column) -> set[str]:
    """What a header says beside the quantity: ``ddp`` of ``ddp time``."""
    return set(re.findall(r"\w+", column.header.lower().replace("_", " "))) - _QUANTITY_WORDS


def _upright(rows: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    """Numbers of devices in the first column; a table that has them in its header is turned."""
    counts = {found for cell in rows[0][1:] if (found := q.devices(cell))}
    return tuple(zip(*rows, strict=True)) if len(counts) >= 2 else rows


def _named_by_context(
    columns: list[Column], rows: Sequence[Sequence[str]], table: Block, around: Surroundings
) -> list[Column]:
    """In a turned table whose rows are models, the quantity is named by the corner or by the text."""
    if has(columns, "time", "rate", "speedup", "efficiency"):
        return columns
    where = f"{table.rows[0][0]} {around.text}"
    told = columns_of([[where], ["1"]])[0]
    if told.role not in ("time", "rate"):
        return columns
    return [c if c.index == 0 else replace(c, role=told.role, per=told.per, unit=told.unit) for c in columns]
