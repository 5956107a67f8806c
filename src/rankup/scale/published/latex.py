r"""Tables of LaTeX: ``tabular`` and its relatives, with ``\multicolumn``, ``\multirow`` and the rules of booktabs."""

from __future__ import annotations

import re

from rankup.scale.published.grids import Clean, one_header

BEGIN = re.compile(r"\\begin\{(tabular[xy*]?|longtable|tabu|tblr)\}")
HEADING = re.compile(r"^\s*\\(part|chapter|section|subsection|subsubsection|paragraph)\*?\{(.*?)\}")
LEVELS = {"part": 1, "chapter": 1, "section": 2, "subsection": 3, "subsubsection": 4, "paragraph": 5}
_RULES = re.compile(
    r"\\(?:hline|toprule|midrule|bottomrule|endhead|endfirsthead|endfoot|endlastfoot|addlinespace|"
    r"(?:cmidrule|cline)(?:\([^)]*\))?\{[^}]*\})(?:\[[^\]]*\])?"
)
_ARGUMENT = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_COLUMNS = re.compile(r"\\multicolumn\{(\d+)\}\{[^}]*\}" + _ARGUMENT)
_ROWS = re.compile(r"\\multirow(?:\[[^\]]*\])?\{[^}]*\}(?:\[[^\]]*\])?\{[^}]*\}" + _ARGUMENT)
_COMMAND = re.compile(
    r"\\(?:text(?:bf|it|tt|rm|sc|sf)|emph|mathbf|mathrm|bf|num|makecell|thead)\s*" + _ARGUMENT
)
_SYMBOLS = (
    ("{,}", ","),
    (r"\times", "×"), (r"\pm", "±"), (r"\sim", "~"), (r"\approx", "≈"), (r"\,", ""), (r"\;", " "), (r"\ ", " "),
    ("~", " "), (r"\xmark", "✗"), (r"\cmark", "✓"), (r"\checkmark", "✓"), (r"\#", "#"), (r"\&", "&"), (r"\%", "%"),
    (r"\_", "_"), ("--", "–"),
)  # fmt: skip


def latex_rows(text: str, clean: Clean) -> list[list[str]]:
    r"""``text`` from ``\begin{tabular}`` to ``\end{tabular}``."""
    body = re.sub(r"(?<!\\)%.*", "", text)
    begin = BEGIN.search(body)
    assert begin is not None
    body = body[begin.end() :].split(r"\end{" + begin[1] + "}")[0]
    body = _after_arguments(body)
    header = re.split(r"\\midrule|\\endhead|\\endfirsthead", body)[0]
    rows = _rows(body, clean)
    headers = len(_rows(header, clean)) if len(header) < len(body) else 1
    return one_header(rows, headers)


def _after_arguments(body: str) -> str:
    """Without the widths and columns that follow ``\\begin{tabular}``: ``{0.8\\textwidth}{l|rr}``."""
    while match := re.match(r"\s*(?:\[[^\]]*\]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})", body):
        body = body[match.end() :]
    return body


def as_page(text: str) -> str:
    """The same lines: sections as headings, tables as they are, and text without commands."""
    lines, table = [], False
    for line in (re.sub(r"(?<!\\)%.*", "", written) for written in text.splitlines()):
        table = table or bool(BEGIN.search(line))
        heading = HEADING.match(line)
        if table:
            lines.append(line)
        elif heading:
            lines.append(f"{'#' * LEVELS[heading[1]]} {plain(heading[2])}")
        else:
            lines.append(plain(re.sub(r"\\(?:begin|end)\{[^}]*\}(?:\[[^\]]*\])?", " ", line)))
        table = table and r"\end{" not in line
    return "\n".join(lines)


def _rows(body: str, clean: Clean) -> list[list[str]]:
    rows = []
    for line in re.split(r"\\\\(?:\[[^\]]*\])?|\\tabularnewline", body):
        cells: list[str] = []
        for cell in re.split(r"(?<!\\)&", _RULES.sub(" ", line)):
            span = _COLUMNS.search(cell)
            cells += [clean(plain(span[2] if span else cell))] * (min(int(span[1]), 50) if span else 1)
        if any(cells):
            rows.append(cells)
    width = max(map(len, rows), default=0)
    return [[*row, *[""] * (width - len(row))] for row in rows]


def plain(text: str) -> str:
    """``text`` without the commands that change how it looks."""
    text = _ROWS.sub(r"\1", text)
    for _ in range(3):  # one within another
        text = _COMMAND.sub(r"\1", text)
    for name, symbol in _SYMBOLS:
        text = text.replace(name, symbol)
    text = re.sub(r"\\(?:footnotemark|tnote|cite[a-z]*|ref|label)(?:\[[^\]]*\])?(?:\{[^}]*\})?", "", text)
    return re.sub(r"[{}$]|\\[a-zA-Z]+\s?", " ", text)
