"""Mistakes in a job script's text itself, which no shell and no scheduler reports where they are made."""

from __future__ import annotations

import re
from typing import Any

from rankup.check.document import Span

_ALMOST = re.compile(r"^#[ \t]?([A-Za-z]{2,9})[ \t]*(?=-{1,2}[A-Za-z])", re.M)
_BLANKS = re.compile(r"\\([ \t]+)$", re.M)
_TEXTS = (
    "comment",
    "string",
    "string_content",
    "raw_string",
    "ansi_c_string",
    "heredoc_body",
    "heredoc_content",
)
_NAMES = ("SBATCH", "PBS")


def misspelt_directives(text: str, end: int) -> list[tuple[Span, str]]:
    """Comments before ``end`` that were meant to be directives, with the right word."""
    found = []
    for match in _ALMOST.finditer(text, 0, end):
        word = match.group(1)
        start = match.start()
        for name in _NAMES:
            glued = word == name and text[match.end(1)] == "-" and text[start + 1] == word[0]
            if glued or (word != name and text[start + 1] == word[0] and _is_misspelt(word, name)):
                found.append(
                    (Span(start, match.end(1)), f"#{name}" + (" " if text[match.end(1)] == "-" else ""))
                )
    return found


def _is_misspelt(word: str, name: str) -> bool:
    """One letter wrong, missing, too many, or two exchanged; case counts. Two wrong letters in a long word."""
    if word.upper() == name:
        return True
    if len(word) < 3 or word[0].upper() != name[0] or word != word.upper():
        return False
    if sorted(word) == sorted(name):
        return True
    return _distance(word, name) <= (2 if len(name) > 4 else 1)


def _distance(one: str, other: str) -> int:
    """Levenshtein's distance."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        previous, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1]


def is_slip(one: str, other: str) -> bool:
    """Whether a word of three letters or more has one letter too many, too few or wrong, or two exchanged, without its
    ``-`` and ``_``."""
    one, other = re.sub("[-_]", "", one), re.sub("[-_]", "", other)
    if len(one) < 3 or len(other) < 4 or abs(len(one) - len(other)) > 1:
        return False
    exchanged = len(one) == len(other) and sum(a != b for a, b in zip(one, other, strict=True)) == 2
    return (exchanged and sorted(one) == sorted(other)) or _distance(one, other) <= 1


def is_like(one: str, other: str) -> bool:
    """Whether two names of variables differ by a slip of the pen."""
    if one == other or min(len(one), len(other)) < 6:
        return False
    if one.replace("_", "").lower() == other.replace("_", "").lower():
        return True
    if re.sub(r"\d+", "", one) == re.sub(r"\d+", "", other):  # NODE1, NODE2
        return False
    if sorted(one) == sorted(other):
        return True
    longer, shorter = sorted((one, other), key=len, reverse=True)
    if longer.startswith(shorter) or longer.endswith(shorter):  # NODE, NODES; ADDR, MASTER_ADDR
        return False
    return abs(len(one) - len(other)) <= 1 and _distance(one, other) == 1


def blanks_after_backslash(text: str, root: Any) -> list[Span]:
    """Blanks between a backslash that was to continue a command and the end of its line."""
    found = []
    for match in _BLANKS.finditer(text):
        node = root.descendant_for_byte_range(match.start(), match.start() + 1)
        following = text[match.end() + 1 :].lstrip(" \t")[:1]
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
        if node is not None and node.type not in _TEXTS and line and following not in ("", "\n", "#"):
            found.append(Span(*match.span(1)))
    return found
