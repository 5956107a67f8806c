"""A text that is checked, and places in it. A block of a page knows where it stands in that page."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate


@dataclass(frozen=True, order=True)
class Span:
    """A part of a document's text, as offsets in characters; ``end`` is exclusive."""

    start: int
    end: int


@dataclass(frozen=True)
class Place:
    """Where a person finds a span. Lines and columns count from 1; the end is exclusive."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    cell: int = 0  # of a notebook, from 1
    cell_line: int = 0  # the line in that cell; ``line`` is that of the file

    def __str__(self) -> str:
        line = f"cell {self.cell}:{self.cell_line}" if self.cell else self.line
        return f"{self.path}:{line}:{self.column}"


@dataclass(frozen=True)
class CellLine:
    """Where a line of a notebook stands: the line of its file, its cell, and the line there; all from 1."""

    line: int
    cell: int
    inner: int


@dataclass(frozen=True)
class Document:
    """A job script or a Python program, from a file of its own or from blocks of a page.

    ``lines`` holds, for a block of a page, the page's line (from 1) of each line of ``text``, and ``indent`` how
    many columns were cut from each. ``complete`` is False if parts of the text are missing (a tutorial's fragment, an
    ellipsis): then nothing may be concluded from what is absent.
    """

    path: str
    text: str
    complete: bool = True
    lines: tuple[int, ...] = ()
    cells: tuple[CellLine, ...] = ()  # of a notebook: where each line of its page stands
    indent: int = 0
    name: str = ""  # the file name that a page gives to a block; a file's own name otherwise
    submitted: str = ""  # the one script that the page submits, if this is the only script that it shows
    helpers: tuple[
        Document, ...
    ] = ()  # scripts that it runs: their texts follow its own, each after a line end

    @cached_property
    def starts(self) -> list[int]:
        """The offset at which each line begins."""
        lines = self.text.split("\n")
        return list(accumulate((len(line) + 1 for line in lines[:-1]), initial=0))

    def line_of(self, offset: int) -> int:
        """The line of ``text`` (from 0) that holds ``offset``."""
        return bisect_right(self.starts, offset) - 1

    def offset(self, line: int, column: int) -> int:
        """The offset of a line (from 0) and a column in characters (from 0)."""
        return self.starts[line] + column

    def offset_of_bytes(self, line: int, column: int) -> int:
        """The offset of a line (from 0) and a column in bytes of UTF-8, as ast and tree-sitter count."""
        return self.starts[line] + len(self.line(line).encode()[:column].decode(errors="ignore"))

    def line(self, number: int) -> str:
        """The text of a line (from 0), without its end."""
        start = self.starts[number]
        end = self.starts[number + 1] - 1 if number + 1 < len(self.starts) else len(self.text)
        return self.text[start:end].removesuffix("\r")

    def with_helpers(self, helpers: tuple[Document, ...]) -> Document:
        """The same, with the texts of the scripts that it runs after its own."""
        texts = [self.text, *(helper.text for helper in helpers)]
        return replace(self, text="\n".join(texts), helpers=helpers) if helpers else self

    def part(self, span: Span) -> tuple[Document, Span]:
        """The document that holds a span, this or a helper, and the span there."""
        end = len(self.text)
        for helper in reversed(self.helpers):
            start = end - len(helper.text)
            if span.start >= start:
                return helper, Span(span.start - start, span.end - start)
            end = start - 1
        return self, span

    def place(self, span: Span) -> Place:
        holder, inside = self.part(span)
        if holder is not self:
            return holder.place(inside)
        line, end_line = self.line_of(span.start), self.line_of(max(span.start, span.end))
        first = self.lines[line] if self.lines else line + 1
        last = self.lines[end_line] if self.lines else end_line + 1
        column, end_column = span.start - self.starts[line] + 1, span.end - self.starts[end_line] + 1
        if self.cells:
            begin, end = self.cells[first - 1], self.cells[last - 1]
            return Place(self.path, begin.line, column, end.line, end_column, begin.cell, begin.inner)
        return Place(self.path, first, column + self.indent, last, end_column + self.indent)

    def line_name(self, number: int) -> str:
        """How a reader finds a line of ``text`` (from 1): in the file, the page or a notebook's cell."""
        line = self.lines[number - 1] if self.lines else number
        if self.cells:
            return f"line {self.cells[line - 1].inner} of cell {self.cells[line - 1].cell}"
        return f"line {line}"

    def __getitem__(self, span: Span) -> str:
        return self.text[span.start : span.end]
