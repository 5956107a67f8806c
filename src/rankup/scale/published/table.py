"""A CSV file, or the one table of a Markdown page → its rows as far as they are understood, and what was left out.

Every cell of a known column is read, or it is named: a row is never dropped silently.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rankup.errors import RankupError
from rankup.scale.published import cells
from rankup.scale.published.cells import Number, Unreadable
from rankup.scale.published.columns import FACTS, Column, column_of

_EMPTY = frozenset(("", "-", "–", "—", "n/a", "na", "oom", "?"))
_FENCE = re.compile(r"\s*(?:```|~~~)")
_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")
Line = tuple[int, Sequence[str]]  # its number in the file, and its cells
T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """A row: ``value`` in seconds or per second over all devices. ``facts`` by the names of ``rankup.scale.work``,
    and ``accumulate``."""

    line: int
    nodes: int
    devices: int
    value: Number
    speedup: Number | None = None
    efficiency: Number | None = None
    accuracy: Number | None = None
    repeats: int = 0
    facts: Mapping[str, str | int | float] = field(default_factory=dict)


@dataclass(frozen=True)
class LeftOut:
    """A row that was not judged, and the cell that is why. ``empty``: its author left it empty, or wrote OOM."""

    line: int
    why: str
    empty: bool


@dataclass(frozen=True)
class Table:
    """``metric``: time, step-time or rate. ``unclear_batch``: nobody tells whether it is of a device or of all."""

    name: str
    line: int
    metric: str
    entries: Sequence[Entry]
    left_out: Sequence[LeftOut] = ()
    unread_columns: Sequence[str] = ()
    unclear_batch: bool = False

    def place(self, *entries: Entry) -> str:
        return f"{self.name}:{','.join(str(one.line) for one in entries) or self.line}"


@dataclass(frozen=True)
class Page:
    """``paragraphs`` around the table, by the number of their first line."""

    name: str
    table: Table | None
    paragraphs: Sequence[tuple[int, str]] = ()


def read_page(path: Path) -> Page:
    """Raises RankupError for a file of another kind, and for a page with several tables that could be meant."""
    text = read_text(path)
    if path.suffix == ".csv":
        dialect = max(",;\t", key=text.partition("\n")[0].count)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=dialect, skipinitialspace=True)
        lines: list[Line] = [(reader.line_num, row) for row in reader if any(map(str.strip, row))]
        return Page(path.name, _table(path.name, lines) if lines else None)
    if path.suffix not in (".md", ".markdown"):
        raise RankupError(
            "unreadable-file",
            f"{path.name} is not a study, a CSV file or a Markdown page",
            context=str(path),
            hint="copy the table into a CSV file that names its columns: devices,precision,global batch,time (s)",
        )
    tables, paragraphs = _of_markdown(text)
    found = [table for lines in tables if lines and (table := _table(path.name, lines))]
    if len(found) > 1:
        raise RankupError(
            "several-tables",
            f"{path.name} has {len(found)} tables of devices: in lines {', '.join(str(t.line) for t in found)}",
            context=str(path),
            hint="put the one to judge into a file of its own, .md or .csv",
        )
    return Page(path.name, found[0] if found else None, paragraphs)


def read_text(path: Path) -> str:
    """Raises ``unreadable-file``."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise RankupError(
            "unreadable-file",
            f"cannot read {path.name}: {reason}",
            context=str(path),
            hint="results.json of rankup scale, a CSV file, or a Markdown page with one table",
        ) from error


def _of_markdown(text: str) -> tuple[list[list[Line]], list[tuple[int, str]]]:
    """The pipe tables, and the paragraphs outside of blocks of code."""
    tables: list[list[Line]] = []
    paragraphs: list[tuple[int, str]] = []
    open_paragraph = False
    lines = text.splitlines()
    fenced = inside = False
    for number, line in enumerate(lines, 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif fenced:
            pass
        elif "|" in line and (inside or _begins(lines, number)):
            if not inside:
                tables.append([])
            inside = True
            if not (tables[-1] and number == tables[-1][0][0] + 1):  # the rule below the header
                row = re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))
                tables[-1].append((number, row))
            open_paragraph = False
            continue
        elif line.strip() and open_paragraph:
            paragraphs[-1] = (paragraphs[-1][0], f"{paragraphs[-1][1]} {line.strip()}")
        elif line.strip():
            paragraphs.append((number, line.strip()))
        open_paragraph, inside = bool(line.strip()) and not fenced, False
    return tables, paragraphs


def _begins(lines: Sequence[str], number: int) -> bool:
    return number < len(lines) and "|" in lines[number] and _RULE.fullmatch(lines[number]) is not None


def _table(name: str, lines: Sequence[Line]) -> Table | None:
    """None if no column names devices, or none a time or a rate. Raises ``unclear-columns``."""
    (first, header), *rest = lines
    columns = [column_of(cell) for cell in header]
    metrics = [column for column in columns if column.role in ("time", "step-time", "rate")]
    if not metrics or not {"devices", "nodes", "per-node"} & {column.role for column in columns}:
        return None
    roles = [column.role for column in columns if column.role]
    twice = [column.header for column in columns if column.role and roles.count(column.role) > 1]
    if len(metrics) > 1 or twice:
        names = ", ".join(twice or [column.header for column in metrics])
        raise RankupError(
            "unclear-columns",
            f"several columns of the table in line {first} tell the same: {names}",
            context=name,
            hint="leave one of them; a table of several methods has a row for each, and a column that names it",
        )
    reader = _Reader(columns, metrics[0], rest)
    entries: list[Entry] = []
    left_out: list[LeftOut] = []
    for line, row in rest:
        if (read := reader.entry(line, row)) is not None:
            (entries if isinstance(read, Entry) else left_out).append(read)  # type: ignore[arg-type]
    return Table(
        name,
        first,
        metrics[0].role,
        entries,
        left_out,
        [column.header for column in columns if not column.role and column.header],
        "some-batch" in roles and not {"batch", "local-batch"} & set(roles),
    )


class _Reader:
    """Reads the rows of one table. What cells mean may follow from their whole column: percent, the unit."""

    def __init__(self, columns: Sequence[Column], metric: Column, rows: Sequence[Line]) -> None:
        self.columns, self.metric = columns, metric
        told = [self._by_role(row) for _, row in rows]
        self.percent = {role: _in_percent(role, told) for role in ("accuracy", "efficiency")}
        values = [one[metric.role] for one in told if one[metric.role].lower() not in _EMPTY]
        # Numbers without any unit are seconds or samples/s alike: their ratios are the same.
        self.bare = not metric.unit and all(re.fullmatch(r"[\d.,\s±]+", value) for value in values)
        self.units: set[str] = set()

    def _by_role(self, row: Sequence[str]) -> dict[str, str]:
        padded = [*row, *[""] * (len(self.columns) - len(row))]
        return {
            column.role: re.sub(r"[*`]", "", cell).strip()
            for column, cell in zip(self.columns, padded, strict=False)
        }

    def entry(self, line: int, row: Sequence[str]) -> Entry | LeftOut:
        told = self._by_role(row)

        def read(role: str, how: Callable[[str], T]) -> T | None:
            cell = told.get(role, "")
            if cell.lower() in _EMPTY:
                return None
            try:
                return how(cell)
            except Unreadable as error:
                header = next(column.header for column in self.columns if column.role == role)
                raise Unreadable(f"{header}: {cell!r} {error}") from None

        try:
            if len(row) > len(self.columns):
                raise Unreadable("the row has more cells than the header")
            nodes, each, given = (read(role, cells.count) for role in ("nodes", "per-node", "devices"))
            devices = given or (nodes or 1) * (each or 1) if given or each else nodes
            if given and nodes and each and given != nodes * each:
                raise Unreadable(f"{nodes} nodes of {each} are not {given} devices")
            value = read(self.metric.role, self._value)
            if devices is None or value is None:
                which = "its value" if devices else "the number of devices"
                return LeftOut(line, f"{which} is not told", empty=True)
            if self.metric.of_one:
                value = value.times(devices)
            return Entry(
                line,
                nodes if nodes and devices % nodes == 0 else 1,
                devices,
                value,
                read("speedup", cells.ratio),
                read("efficiency", lambda cell: cells.share(cell, percent=self.percent["efficiency"])),
                read("accuracy", lambda cell: cells.share(cell, percent=self.percent["accuracy"])),
                read("repeats", cells.count) or 0,
                self._facts(told, devices, read),
            )
        except Unreadable as error:
            return LeftOut(line, str(error), empty=False)

    def _value(self, cell: str) -> Number:
        if self.metric.role != "rate":
            return cells.seconds(cell, "s" if self.bare else self.metric.unit)
        found, unit = cells.number(cell)
        self.units.add(unit)
        if len(self.units) > 1:
            raise Unreadable(
                f"has another unit than a row above: {' and '.join(map(repr, sorted(self.units)))}"
            )
        return found

    def _facts(
        self, told: Mapping[str, str], devices: int, read: Callable[[str, Callable[[str], int]], int | None]
    ) -> dict[str, str | int | float]:
        facts: dict[str, str | int | float] = {
            role: told[role] for role in FACTS if told.get(role, "").lower() not in _EMPTY
        }
        if told.get("precision", "").lower() not in _EMPTY:
            facts["precision"] = cells.precision(told["precision"])
        for role in ("samples", "steps"):
            if (whole := read(role, cells.count)) is not None:
                facts[role] = whole
        times, whole, local = (read(role, cells.count) for role in ("accumulate", "batch", "local-batch"))
        if times is not None:
            facts["accumulate"] = times
        if whole is None and local is not None:
            whole = local * devices * (times or 1)
        if whole is not None:
            facts["global_batch"] = whole
        read("some-batch", cells.count)
        return facts


def _in_percent(role: str, rows: Sequence[Mapping[str, str]]) -> bool:
    """Whether one of the column's numbers is above 1: then 0.9 is 0.9 %, and not 90 %."""
    found = []
    for row in rows:
        try:
            found.append(cells.number(row.get(role, ""))[0].value)
        except Unreadable:
            continue
    return any(value > 1 for value in found)
