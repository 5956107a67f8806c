"""A shell text with its places in the document, also after it was quoted, stored in a variable, and put together."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable

from rankup.check.document import Span
from rankup.check.facts.job.commands import Atom, Literal, Value

_FIRST = 0xE000  # private characters stand for atoms without a known text
_LAST = 0xF8FF
PLACEHOLDER = re.compile("[\ue000-\uf8ff]")
_SHEBANG = re.compile(r"#![ \t]*(\S+)(?:[ \t]+(?:-S[ \t]+)?(\S+))?")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


#: Words that a reader or a program replaces: <project>, <folder>/train.py, {{ nodes }}; and a template's own lines.
#: ``<in.txt>/tmp/out`` are two redirections.
_TO_FILL_IN = re.compile(
    r"(?<![<\w])<[A-Za-z][\w/.-]*(?: [\w/.-]+)*>(?![\w/$])|(?<![<\w])<[A-Za-z][\w-]*(?: [\w-]+)*>(?=/(?!dev/))"
    r"|\{\{[^{}\n]*\}\}"
)
_OF_TEMPLATE = re.compile(r"^([ \t]*)\{%[^\n]*%\}[ \t]*$", re.M)


def with_unknown_words(text: str) -> str:
    """``text`` with a variable that nobody knows for each word to fill in, at the same places."""
    if "{%" in text:
        text = _OF_TEMPLATE.sub(lambda match: match[1] + "#" * (len(match[0]) - len(match[1])), text)
    return _TO_FILL_IN.sub(_unknown_word, text)


def _unknown_word(match: re.Match[str]) -> str:
    return "$_" + re.sub(r"\W", "_", match[0][1:-1])


def as_written(word: str, text: str) -> tuple[str, str]:
    """A word of ``with_unknown_words(text)`` as ``text`` has it, and the last word to fill in that is in it, or ""."""
    last = ""
    for match in sorted(_TO_FILL_IN.finditer(text), key=lambda match: -len(match[0])):
        if _unknown_word(match) in word:
            word, last = word.replace(_unknown_word(match), match[0]), match[0]
    return word, last


class Source:
    """A text to be read by a shell.

    ``pieces`` say where its characters stand in the document: (start in the text, start in the document or None, end in
    the document). Placeholders in the text are the ``atoms``.
    """

    def __init__(self, text: str, pieces: list[tuple[int, Span, bool]], atoms: list[Atom]) -> None:
        self.text = text
        self.pieces = pieces
        self.atoms = atoms
        self.starts = [piece[0] for piece in pieces]

    @classmethod
    def of_document(cls, text: str, start: int = 0) -> Source:
        """The text of a file; its places count from ``start``."""
        clean = PLACEHOLDER.sub("?", with_unknown_words(text))
        return cls(clean, [(0, Span(start, start + len(text)), True)], [])

    @classmethod
    def of_value(cls, value: Value) -> Source:
        """The text that a value is, for a shell that reads it."""
        parts: list[str] = []
        pieces: list[tuple[int, Span, bool]] = []
        atoms: list[Atom] = []
        size = 0
        for atom in value.atoms:
            if isinstance(atom, Literal):
                text = atom.text
                exact = atom.span.end - atom.span.start == len(text)
            elif _FIRST + len(atoms) <= _LAST:
                text = chr(_FIRST + len(atoms))
                atoms.append(atom)
                exact = False
            else:
                continue
            pieces.append((size, atom.span, exact))
            parts.append(text)
            size += len(text)
        return cls("".join(parts), pieces or [(0, Span(0, 0), False)], atoms)

    @property
    def ascii_text(self) -> str:
        """The same, with a word character for each that is not ASCII: bytes are characters then."""
        return self.text if self.text.isascii() else _NOT_ASCII.sub("_", self.text)

    def span(self, start: int, end: int) -> Span:
        """Where a part of the text stands in the document."""
        first = self._place(start, False)
        last = self._place(max(start, end - 1), True)
        if first.start < last.end:
            return Span(first.start, last.end)
        # It was put together from several places: the first of them.
        piece = self.pieces[max(0, bisect_right(self.starts, start) - 1)][1]
        return Span(first.start, max(first.end, piece.end))

    def _place(self, offset: int, last: bool) -> Span:
        start, span, exact = self.pieces[max(0, bisect_right(self.starts, offset) - 1)]
        if exact:
            place = min(span.start + offset - start, span.end)
            return Span(place, min(place + 1, span.end)) if last else Span(place, place)
        return span

    def literal(self, text: str, start: int, end: int, quoted: bool) -> list[Atom]:
        """``text``, which stands at ``start:end``; placeholders become the atoms that they stand for."""
        if not text:
            return []
        if not self.atoms or not PLACEHOLDER.search(text):
            return [Literal(text, self.span(start, end), quoted)]
        atoms: list[Atom] = []
        exact = len(text) == end - start
        following = start
        for part in re.split("([\ue000-\uf8ff])", text):
            position, following = following, following + len(part)
            if not part:
                continue
            if PLACEHOLDER.fullmatch(part):
                index = ord(part) - _FIRST
                if index < len(self.atoms):
                    atoms.append(self.atoms[index])
            else:
                span = self.span(position, following) if exact else self.span(start, end)
                atoms.append(Literal(part, span, quoted))
        return atoms


def joined(values: Iterable[Value], between: str = " ") -> Value:
    """Words with a blank between them, as ``eval`` and ssh put them together."""
    atoms: list[Atom] = []
    for value in values:
        if atoms:
            atoms.append(Literal(between, Span(atoms[-1].span.end, atoms[-1].span.end)))
        atoms += value.atoms
    return Value(tuple(atoms))


def language_of(text: str) -> str:
    """The shell or the language of a script, by its first line."""
    match = _SHEBANG.match(text)
    if match is None:
        return "bash"
    program = match.group(1).rpartition("/")[2]
    if program == "env" and match.group(2):
        program = match.group(2).rpartition("/")[2]
    if program in ("csh", "tcsh"):
        return "csh"
    if program in ("bash", "sh", "zsh", "ksh", "dash", "rbash", "bash5"):
        return "bash"
    return re.sub(r"[\d.]+$", "", program)
