"""A document of text and figures as PDF, on pages of A4, without LaTeX. The same content gives the same bytes."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure

from rankup.scale.report.figures.draw import style
from rankup.scale.report.figures.picture import Picture

_A4 = (8.27, 11.69)  # inches
_TOP, _BOTTOM, _LEFT = 0.95, 0.06, 0.08
_LINE = 0.0145  # of a page
_WIDTH, _FIXED_WIDTH = 96, 104  # characters
_FIGURE = (7.0, 5.0)  # inches


@dataclass(frozen=True)
class Block:
    """A title and its lines. ``fixed``: columns stay below each other, so nothing is filled up to a line's end."""

    title: str
    lines: Sequence[str]
    heading: bool = False
    fixed: bool = False


def pages(blocks: Sequence[Block], pictures: Sequence[Picture], after: Sequence[Block] = ()) -> bytes:
    """``blocks``, then ``pictures``, then what comes ``after`` them."""
    buffer = io.BytesIO()
    with (
        style("proposal"),
        PdfPages(buffer, metadata={"CreationDate": None, "Creator": None, "Producer": None}) as pdf,
    ):
        for figure in (*_text(blocks), *_figures(pictures), *_text(after)):
            pdf.savefig(figure)
    return buffer.getvalue()


def fixed_lines(text: str) -> list[str]:
    """A line of a script as it fits a page: it keeps its indentation, and goes on below if it is too long."""
    return textwrap.wrap(text, _FIXED_WIDTH, drop_whitespace=False, replace_whitespace=False) or [""]


def _text(blocks: Sequence[Block]) -> Iterator[Figure]:
    figure, y = Figure(figsize=_A4), _TOP
    for line, size, weight, family in _lines(blocks):
        if y < _BOTTOM:
            yield figure
            figure, y = Figure(figsize=_A4), _TOP
        figure.text(_LEFT, y, line, size=size, weight=weight, family=family, va="top")
        y -= _LINE * size / 9
    if blocks:
        yield figure


def _lines(blocks: Sequence[Block]) -> Iterator[tuple[str, float, str, str]]:
    for block in blocks:
        size = 14.0 if block.heading else 10.5
        for line in textwrap.wrap(block.title, 60 if block.heading else 84):
            yield line, size, "bold", "DejaVu Sans"
        for text in block.lines:
            for line in fixed_lines(text) if block.fixed else textwrap.wrap(text, _WIDTH) or [""]:
                yield (
                    line,
                    7.5 if block.fixed else 9.0,
                    "normal",
                    "DejaVu Sans Mono" if block.fixed else "DejaVu Sans",
                )
        yield "", 9.0, "normal", "DejaVu Sans"


def _figures(pictures: Sequence[Picture]) -> Iterator[Figure]:
    """A page for each, as large as it wants to be: its legend may need room."""
    for picture in pictures:
        figure = Figure(figsize=_FIGURE)
        picture.draw(figure)
        figure.suptitle(textwrap.fill(f"{picture.title}. {picture.caption}", 100), size=8)
        yield figure
