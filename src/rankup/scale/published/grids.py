"""Tables whose cells span rows and columns: HTML, and the grids of reStructuredText.

A cell that spans several places is written in each of them, and the rows of a header become one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

_HTML_ROW = re.compile(r"<tr\b.*?>(.*?)(?=<tr\b|</tr>|</table>)", re.S | re.I)
_HTML_CELL = re.compile(r"<t([hd])\b([^>]*)>(.*?)(?=<t[hd]\b|</t[hd]>|$)", re.S | re.I)
_MOST = 50  # places that a cell may span

Clean = Callable[[str], str]


def html_rows(text: str, clean: Clean) -> list[list[str]]:
    places: dict[tuple[int, int], str] = {}
    headers = 0  # rows of <th> alone, at the top
    found = _HTML_ROW.findall(text)
    for y, row in enumerate(found):
        cells = _HTML_CELL.findall(row)
        if headers == y and cells and all(kind in "hH" for kind, _, _ in cells):
            headers += 1
        x = 0
        for _, attributes, content in cells:
            while (y, x) in places:
                x += 1
            wide, high = _span(attributes, "col"), _span(attributes, "row")
            for below in range(high):
                for right in range(wide):
                    places[y + below, x + right] = clean(content)
            x += wide
    width = max((x for _, x in places), default=-1) + 1
    rows = [[places.get((y, x), "") for x in range(width)] for y in range(len(found))]
    return one_header([row for row in rows if any(row)], headers)


def _span(attributes: str, way: str) -> int:
    span = re.search(way + r"span\s*=\s*[\"']?(\d+)", attributes, re.I)
    return min(max(int(span[1]), 1), _MOST) if span else 1


def grid_rows(lines: Sequence[str], clean: Clean) -> list[list[str]]:
    """Of the lines of one grid, ``+---+---+`` above and below. Cells may have several lines."""
    edges = sorted({at for line in lines for at in _corners(line)})
    columns = list(pairwise(edges))
    rows: list[list[str]] = []
    texts: list[list[str]] = [[] for _ in columns]
    spans: list[int] = []  # columns of which the cell above goes on
    headers = 0
    for line in lines:
        padded = line.ljust(edges[-1] + 1 if edges else 0)
        closed = [
            n for n, (low, high) in enumerate(columns) if re.fullmatch(r"[-=]+", padded[low + 1 : high])
        ]
        if not closed:
            for n, (low, _) in enumerate(columns):
                # Without a bar at its left edge a column belongs to the cell before it.
                if n and padded[low] not in "|+":
                    texts[n] = texts[n - 1]
                    continue
                high = next((h for _, h in columns[n:] if padded[h] in "|+"), edges[-1])
                texts[n].append(padded[low + 1 : high])
            continue
        if any(any(part.strip() for part in text) for text in texts):
            rows.append([clean(" ".join(text)) for text in texts])
            for n in spans:
                rows[-1][n] = " ".join(dict.fromkeys([*rows[-2][n].split(), *rows[-1][n].split()]))
        spans = [n for n in range(len(columns)) if n not in closed] if rows else []
        texts = [[] for _ in columns]
        for n in spans:  # the text of a cell that spans rows may lie on the line between them
            texts[n] = [padded[columns[n][0] + 1 : columns[n][1]]]
        if "=" in padded and not headers:
            headers = len(rows)
    return one_header(_filled_up(rows, headers), headers)


def _corners(line: str) -> list[int]:
    return [match.start() for match in re.finditer(r"\+", line)] if re.search(r"\+[-=]+\+", line) else []


def _filled_up(rows: list[list[str]], headers: int) -> list[list[str]]:
    """The rows of a header: a cell that spans them has its text in the last one alone, if it lies there."""
    for row, below in pairwise(rows[:headers]):
        for n, text in enumerate(below):
            row[n] = row[n] or text
    return rows


def one_header(rows: list[list[str]], headers: int) -> list[list[str]]:
    """The first ``headers`` rows as one: ``FP32`` above ``img/s`` is ``FP32 img/s``."""
    if headers < 2 or headers >= len(rows):
        return rows
    joined = [
        " ".join(dict.fromkeys(part for part in parts if part)) for parts in zip(*rows[:headers], strict=True)
    ]
    return [joined, *rows[headers:]]
