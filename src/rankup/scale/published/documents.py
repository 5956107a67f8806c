"""A document as tables and paragraphs: Markdown, HTML, reStructuredText, LaTeX, CSV. What is in a table is text
here; nothing is understood yet."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import unescape

from rankup.scale.published import latex
from rankup.scale.published.grids import grid_rows, html_rows
from rankup.scale.published.quantities import decimal_points


@dataclass(frozen=True)
class Block:
    """``kind``: heading, text, code or table. ``rows`` of a table are cells, the header first. ``line`` from 1."""

    kind: str
    line: int
    text: str = ""
    level: int = 0  # of a heading: 1 is the page's
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Document:
    name: str
    blocks: Sequence[Block] = field(default_factory=list)

    @property
    def tables(self) -> list[Block]:
        return [block for block in self.blocks if block.kind == "table"]


_FENCE = re.compile(r"^\s*(```+|~~~+)")
_HEADING = re.compile(r"^\s{0,3}(#{1,6})\s+(.*?)#*\s*$|^\s*<h([1-6])\b[^>]*>(.*?)</h[1-6]>", re.I)
_RULE = re.compile(r"^\s*\|?\s*:?-{1,}:?\s*(\|\s*:?-{1,}:?\s*)+\|?\s*$")
_UNDERLINE = re.compile(r"^([=\-~^\"'#*+.])\1{2,}\s*$")
_GRID = re.compile(r"^\s*\+[-=+]+\+\s*$")
_SIMPLE = re.compile(r"^\s*={2,}(\s+={2,})+\s*$")
_LIST_TABLE = re.compile(r"^\s*(?:\.\. |```\{|:::\{)list-table(?:::|\})\s*(.*)$")
_CSV_TABLE = re.compile(r"^\s*(?:\.\. |```\{|:::\{)csv-table(?:::|\})\s*(.*)$")
_ITEM = re.compile(
    r"^\s*[-*+]\s+(?P<what>[^:|]*(?:gpus?|nodes?|process(?:es)?|cpus?)\b[^:|]*?):\s+(?P<result>.*\d.*)$", re.I
)
_TAG = re.compile(r"<[^>]+>")
_FIGURE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
_LINK = re.compile(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
_FOOTNOTE = re.compile(r"\[\^[^\]]+\]|<sup>.*?</sup>", re.I)


def read_csv(text: str, name: str) -> Document:
    """Comments (``#``) before the table are its text; the separator is guessed."""
    lines = text.splitlines()
    comments = [line.lstrip("# ") for line in lines if line.lstrip().startswith("#")]
    body = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    separator = max(",;\t|", key=body[0].count) if body else ","
    rows = [
        tuple(clean(cell) for cell in row)
        for row in csv.reader(body, delimiter=separator, skipinitialspace=True)
    ]
    blocks = [Block("text", 1, " ".join(comments))] if comments else []
    return Document(
        name, [*blocks, Block("table", len(comments) + 1, rows=_square(rows))] if rows else blocks
    )


def read_page(text: str, name: str) -> Document:
    """Markdown, reStructuredText, HTML or LaTeX, whichever it is."""
    lines = text.replace("\t", "    ").splitlines()
    page = Document(name, list(_blocks(lines)))
    shown = None if page.tables else _preformatted(lines)  # a file that is nothing but a printed table
    return Document(name, [Block("table", 1, rows=_square(shown))]) if shown else page


def clean(cell: str) -> str:
    """A cell's text without markup."""
    cell = _LINK.sub(r"\1", _FIGURE.sub("", _FOOTNOTE.sub("", cell)))
    cell = unescape(_TAG.sub(" ", cell)).replace("\xa0", " ")
    cell = re.sub(r"\\([%_*#|$])", r"\1", cell.replace(r"\times", "×").replace("$", ""))
    cell = re.sub(r"[*`]+|(?<!\w)_+|_+(?!\w)", "", cell)
    return " ".join(cell.split())


def _blocks(lines: list[str]) -> Iterator[Block]:
    at, begun = 0, 0
    text: list[str] = []
    underlines: dict[str, int] = {}  # reStructuredText: the level of each character, by first use

    def paragraph() -> Iterator[Block]:
        if text:
            yield Block("text", begun + 1, clean(" ".join(text)))
            text.clear()

    while at < len(lines):
        line = lines[at]
        found = _table_at(lines, at)
        heading = _HEADING.match(line)
        fence = _FENCE.match(line)
        if found is not None:
            rows, end = found
            yield from paragraph()
            if len(rows) > 1:
                yield Block("table", at + 1, rows=_square(rows))
            at = end
        elif fence or (line.rstrip().endswith("::") and at + 1 < len(lines) and not lines[at + 1].strip()):
            yield from paragraph()
            end = _end_of_fence(lines, at, fence[1]) if fence else _end_of_indent(lines, at)
            inside = lines[at + 1 : end - 1] if fence else lines[at + 1 : end]
            shown = _preformatted(inside)
            if shown:
                yield Block("table", at + 2, rows=_square(shown))
            else:
                yield Block("code", at + 1, "\n".join(inside))
            at = end
        elif heading:
            yield from paragraph()
            level = int(heading[3]) if heading[3] else len(heading[1])
            yield Block("heading", at + 1, clean(heading[2] or heading[4]), level)
            at += 1
        elif line.strip() and at + 1 < len(lines) and _UNDERLINE.match(lines[at + 1]) and not text:
            underlines.setdefault(lines[at + 1][0], len(underlines) + 1)
            yield Block("heading", at + 1, clean(line), underlines[lines[at + 1][0]])
            at += 2
        else:
            if not line.strip():
                yield from paragraph()
            elif not _UNDERLINE.match(line):
                begun = at if not text else begun
                text.append(line)
            at += 1
    yield from paragraph()


def _table_at(lines: list[str], at: int) -> tuple[list[list[str]], int] | None:
    """The rows of the table that begins here, and the line after it."""
    line = lines[at]
    if "|" in line and at + 1 < len(lines) and _RULE.match(lines[at + 1]):
        return _pipes(lines, at)
    if _GRID.match(line):
        return _grid(lines, at)
    if _SIMPLE.match(line):
        return _simple(lines, at)
    if re.search(r"<table\b", line, re.I) and "<tr" in "".join(lines[at : at + 10]).lower():
        end = next((n for n in range(at, len(lines)) if "</table>" in lines[n].lower()), len(lines) - 1)
        return html_rows("\n".join(lines[at : end + 1]), clean), end + 1
    if latex.BEGIN.search(line):
        end = next((n for n in range(at, len(lines)) if r"\end{" in lines[n]), len(lines) - 1)
        return latex.latex_rows("\n".join(lines[at : end + 1]), clean), end + 1
    if _ITEM.match(line):
        items = []
        for item in lines[at:]:
            match = _ITEM.match(item)
            if not match:
                break
            items.append([clean(match["what"]), clean(match["result"])])
        return ([["configuration", "result"], *items], at + len(items)) if len(items) > 1 else None
    if _LIST_TABLE.match(line):
        return _list_table(lines, at)
    if _CSV_TABLE.match(line):
        end = _end_of_indent(lines, at)
        options = [one.strip() for one in lines[at + 1 : end]]
        header = [one.split(":header:", 1)[1] for one in options if one.startswith(":header:")]
        body = [one for one in options if one and not one.startswith(":")]
        return [[clean(c) for c in row] for row in csv.reader(header + body, skipinitialspace=True)], end
    return None


def _pipes(lines: list[str], at: int) -> tuple[list[list[str]], int]:
    rows, end = [], at
    while end < len(lines) and "|" in lines[end]:
        if not _RULE.match(lines[end]):
            rows.append([clean(cell) for cell in _split(lines[end])])
        end += 1
    return rows, end


def _split(line: str) -> list[str]:
    return re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))


def _grid(lines: list[str], at: int) -> tuple[list[list[str]], int]:
    """Rows of ``+---+---+``, whose cells may have several lines."""
    end = at
    while end < len(lines) and lines[end].lstrip()[:1] in ("+", "|"):
        end += 1
    return grid_rows(lines[at:end], clean), end


def _simple(lines: list[str], at: int) -> tuple[list[list[str]], int]:
    """``=== ===`` above and below, columns by position."""
    spans = [match.span() for match in re.finditer(r"=+", lines[at])]
    starts = [start for start, _ in spans]
    rows, rules, end = [], 1, at + 1
    while end < len(lines) and rules < 3:
        if _SIMPLE.match(lines[end]):
            rules += 1
            if rules == 2 and (end + 1 >= len(lines) or not lines[end + 1].strip()):
                end += 1
                break
        elif lines[end].strip():
            bounds = zip(starts, [*starts[1:], None], strict=True)
            rows.append([clean(lines[end][low:high]) for low, high in bounds])
        end += 1
    return rows, end


def _list_table(lines: list[str], at: int) -> tuple[list[list[str]], int]:
    fenced = lines[at].lstrip().startswith(("```", ":::"))
    end = _end_of_fence(lines, at, lines[at].lstrip()[:3]) if fenced else _end_of_indent(lines, at)
    rows: list[list[str]] = []
    for line in lines[at + 1 : end]:
        if match := re.match(r"\s*\* - ?(.*)", line):
            rows.append([clean(match[1])])
        elif rows and (match := re.match(r"\s+- ?(.*)", line)):
            rows[-1].append(clean(match[1]))
        elif rows and line.strip() and not line.strip().startswith((":", "```", ":::")):
            rows[-1][-1] += " " + clean(line)
    return rows, end


def _preformatted(lines: list[str]) -> list[list[str]] | None:
    """A table that is shown as text: pipes or a grid inside a code block, or columns two spaces apart."""
    body = [line for line in lines if line.strip()]
    for at, _ in enumerate(body):
        found = _table_at(body, at)
        if found and len(found[0]) > 1:
            return found[0]
    rows = [re.split(r"\s{2,}|\t", line.strip()) for line in body if not re.fullmatch(r"[\s\-=+]+", line)]
    body_rows = rows[1:]
    if [row[0] for row in body_rows] == [str(n) for n in range(len(body_rows))] and all(
        len(row) == len(rows[0]) + 1 for row in body_rows
    ):
        rows[1:] = [row[1:] for row in body_rows]  # pandas numbers the rows, without a header
    widths = {len(row) for row in rows}
    if len(rows) >= 3 and len(widths) == 1 and widths.pop() >= 2:
        return [[clean(cell) for cell in row] for row in rows]
    return None


def _end_of_fence(lines: list[str], at: int, mark: str) -> int:
    closing = (n for n in range(at + 1, len(lines)) if lines[n].strip().startswith(mark[:3]))
    return next(closing, len(lines)) + 1


def _end_of_indent(lines: list[str], at: int) -> int:
    """The first line after ``at`` that is not empty and not indented more."""
    indent = len(lines[at]) - len(lines[at].lstrip())
    for n in range(at + 1, len(lines)):
        if lines[n].strip() and len(lines[n]) - len(lines[n].lstrip()) <= indent:
            return n
    return len(lines)


def _square(rows: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Each row as long as the header, with decimal points."""
    width = len(rows[0])
    return tuple(tuple([*row, *[""] * width][:width]) for row in decimal_points(rows))
