"""Rows in columns: drawn by rich on a terminal, which folds wide columns; one plain line for each row elsewhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from rankup.core.columns import aligned

Cell = str | tuple[str, str]  # text, or (text, colour)


def print_table(head: Sequence[str], rows: Sequence[Sequence[Cell]], *, fold: Sequence[str]) -> None:
    """Print ``rows`` below ``head`` to stdout. ``fold`` names the columns that may take several lines."""
    if not sys.stdout.isatty():
        print("\n".join(aligned([list(head), *([_text(cell) for cell in row] for row in rows)])))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in head:
        table.add_column(name, no_wrap=name not in fold, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_text(cell), style="" if isinstance(cell, str) else cell[1]) for cell in row))
    Console(width=shutil.get_terminal_size().columns, highlight=False, emoji=False).print(table)


def _text(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell[0]
