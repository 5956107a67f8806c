"""Rows in columns: aligned plain text; on a terminal that is too narrow for it, rich folds the wide columns."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from rankup.cli.console import paint

Cell = str | tuple[str, str]  # text, or (text, colour)


def print_table(head: Sequence[str], rows: Sequence[Sequence[Cell]], *, fold: Sequence[str]) -> None:
    """Print ``rows`` below ``head`` to stdout. ``fold`` names the columns that may take several lines."""
    lines = _lines(head, rows)
    columns = shutil.get_terminal_size().columns
    if sys.stdout.isatty() and max(len(line) for line in _lines(head, rows, plain=True)) > columns:
        _print_folded(head, rows, fold, columns)
    else:
        print("\n".join(lines))


def _lines(head: Sequence[str], rows: Sequence[Sequence[Cell]], *, plain: bool = False) -> list[str]:
    heading: list[Cell] = [(text, "bold") for text in head]
    widths = [max(len(_text(row[i])) for row in (heading, *rows)) for i in range(len(head))]
    lines = []
    for row in (heading, *rows):
        cells = [_text(cell).ljust(width) for cell, width in zip(row, widths, strict=True)]
        while cells and not cells[-1].strip():
            cells.pop()
        cells[-1] = cells[-1].rstrip()
        if not plain:
            cells = [c if isinstance(of, str) else paint(c, of[1]) for c, of in zip(cells, row, strict=False)]
        lines.append("  ".join(cells))
    return lines


def _print_folded(
    head: Sequence[str], rows: Sequence[Sequence[Cell]], fold: Sequence[str], columns: int
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in head:
        table.add_column(name, no_wrap=name not in fold, overflow="fold")
    for row in rows:
        table.add_row(
            *(Text(cell) if isinstance(cell, str) else Text(cell[0], style=cell[1]) for cell in row)
        )
    Console(width=columns, highlight=False, emoji=False).print(table)


def _text(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell[0]
