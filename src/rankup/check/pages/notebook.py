"""A Jupyter notebook → a Markdown page of its cells, and where each line of that page stands in the notebook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from rankup.check.document import CellLine

#: The word in a fence's label that marks code of the kernel: all these cells are one program.
KERNEL = "kernel-cell"
_FENCE = "`" * 12
_CELL_MAGIC = re.compile(r"^%%(?P<name>\w+)[ \t]*(?P<rest>.*)$")
_SHELLS = ("bash", "sh", "shell", "script")
_FILES = ("writefile", "file")
_AROUND = ("time", "timeit", "capture", "prun", "memit")  # they run the cell's own code
_NO_PYTHON = re.compile(r"^(?P<indent>\s*)(?:[\w, ]+=\s*)?(?P<code>[%!].*|\?.*|[\w.]+\?+)$")


def notebook_page(text: str) -> tuple[str, tuple[CellLine, ...]]:
    """The page and its lines; an empty one for what is not a notebook.

    A cell of shell commands is a block of bash, a file that a cell writes a block with its name, and commands of the
    notebook itself are left out of the program. The number of a cell counts from 1, Markdown cells included.
    """
    try:
        notebook = json.loads(text)
        cells = notebook["cells"]
        language = str(notebook.get("metadata", {}).get("kernelspec", {}).get("language", "python")).lower()
        parts = [(str(cell["cell_type"]), "".join(cell.get("source", ()))) for cell in cells]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "", ()
    page: list[str] = []
    places: list[CellLine] = []
    position = 0
    for number, (kind, source) in enumerate(parts, 1):
        lines = source.split("\n")
        position, rows = _rows(text, position, lines)
        shown = list(zip(lines, rows, range(1, len(lines) + 1), strict=True))
        if kind == "code":
            label, shown = _code(shown, language)
            shown = [(f"{_FENCE}{label}", rows[0], 1), *shown, (_FENCE, rows[-1], len(lines))]
        elif kind != "markdown":
            continue
        for line, row, inner in [*shown, ("", rows[-1], len(lines))]:
            page.append(line)
            places.append(CellLine(row, number, inner))
    return "\n".join(page), tuple(places)


def _rows(text: str, position: int, lines: list[str]) -> tuple[int, list[int]]:
    """The line of the file that holds each line of a cell, which JSON writes as a string; where the last one ends."""
    rows = []
    row = text.count("\n", 0, position) + 1
    for line in lines:
        found = next(
            (
                at
                for ascii in (False, True)
                if (at := text.find(json.dumps(line, ensure_ascii=ascii)[:-1], position)) >= 0
            ),
            position,
        )
        row += text.count("\n", position, found)
        position = found
        rows.append(row)
        position += len(line)
    return position, rows


_Shown = list[tuple[str, int, int]]


def _code(shown: _Shown, language: str) -> tuple[str, _Shown]:
    """The label of a code cell's block, and its lines."""
    magic = _CELL_MAGIC.match(shown[0][0])
    name, rest = (magic["name"], magic["rest"]) if magic else ("", "")
    if name in _SHELLS:
        return "bash", shown[1:]
    if name in _FILES:
        return rest.split()[-1] if rest.split() else "text", shown[1:]
    if name and name not in _AROUND:
        return "text", []
    if language != "python":
        return language, shown[bool(name) :]
    if all(not line.strip() or line.lstrip().startswith(("!", "#")) for line, _, _ in shown):
        return "console", [(line.replace("!", "$ ", 1), row, inner) for line, row, inner in shown]
    return f"python {KERNEL}", list(_python(shown[bool(name) :]))


def _python(shown: _Shown) -> Iterator[tuple[str, int, int]]:
    """The lines of a Python cell; ``pass`` in place of commands of the notebook and of the shell."""
    goes_on = False
    for line, row, inner in shown:
        command = _NO_PYTHON.match(line)
        left_out = goes_on or command is not None
        goes_on = left_out and line.rstrip().endswith("\\")
        yield (f"{command['indent']}pass" if command else "" if left_out else line), row, inner
