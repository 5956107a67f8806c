"""Columns of plain text: every table that is printed without colours of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def aligned(
    rows: Sequence[Sequence[str]], *, right: Collection[int] = (), widest: int | None = None
) -> list[str]:
    """A line for each row, its cells padded to their column's width and two spaces apart.

    Columns whose numbers are in ``right`` end where the column ends, all others begin where it begins. A cell that is
    longer than ``widest`` moves only the rest of its own line.
    """
    lengths = [[len(cell) for cell in column] for column in zip(*rows, strict=True)]
    widths = [max((n for n in column if widest is None or n <= widest), default=0) for column in lengths]
    return [
        "  ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
