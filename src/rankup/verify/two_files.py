"""Copies of the files that a script wrote without and with an interruption, and where two of them differ first.

Each training's files are put back as they were, so a person who wants to look at both needs copies.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

UNINTERRUPTED, RESUMED = "uninterrupted", "resumed"
MOST_KEPT = 1 << 30  # bytes of copies of one training: a proof must not fill the disk
_BLOCK = 1 << 20
_BEFORE, _SHOWN = 24, 40  # bytes of a line: before the first difference, and from there on


@dataclass(frozen=True)
class TwoFiles:
    """Of one file: its copies, as paths that can be typed here, that of the uninterrupted training first; fewer than
    two if one is not there. ``where`` they differ first, "" if nobody can say."""

    copies: tuple[str, ...]
    where: str


class Copies:
    """Of the files of a proof, in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, training: str, paths: Iterable[str]) -> None:
        """Copies of ``paths``, as ``training`` left them. What does not fit is left out: the proof needs no copy."""
        room = MOST_KEPT
        for path in paths:
            copy = self._place(training, path)
            try:
                size = Path(path).stat().st_size
                if size > room:
                    continue
                room -= size
                copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                shutil.copy2(path, copy)
            except OSError:
                copy.unlink(missing_ok=True)

    def of(self, paths: Sequence[str], *, missing: Collection[str], named: Collection[str]) -> list[TwoFiles]:
        """The copies of ``paths``, which differ; ``missing``: those that the resumed training did not leave; ``named``:
        those with a value in them that is known to differ. All others are removed: what is left is what to look at."""
        wanted = {self._place(training, path) for training in (UNINTERRUPTED, RESUMED) for path in paths}
        for copy in list(self._folder.rglob("*")):
            if copy.is_file() and copy not in wanted:
                copy.unlink()
        here = f"{Path.cwd().resolve()}{os.sep}"
        found = []
        for path in paths:
            places = [self._place(training, path) for training in (UNINTERRUPTED, RESUMED)]
            copies = [place for place in places if place.is_file()]
            where = "it is not there after a resume" if path in missing else ""
            if len(copies) == 2:
                where = first_difference(*copies, of_bytes=path not in named)
            found.append(TwoFiles(tuple(str(copy).removeprefix(here) for copy in copies), where))
        return found

    def _place(self, training: str, path: str) -> Path:
        """Files below the current folder by their name in it; others by their whole path."""
        whole, here = Path(path), Path.cwd().resolve()
        name = whole.relative_to(here) if whole.is_relative_to(here) else whole.relative_to(whole.anchor)
        return self._folder / training / name

    def drop(self) -> None:
        with suppress(OSError):
            shutil.rmtree(self._folder)


def first_difference(mine: Path, theirs: Path, *, of_bytes: bool = True) -> str:
    """Where two files differ first, in words: a line of text, both shortened around the place, or (``of_bytes``) a
    byte."""
    found = _place_of_difference(mine, theirs)
    if found is None:
        return ""
    at, number = found
    lines = _around(mine, at), _around(theirs, at)
    if None not in lines and lines[0] != lines[1]:  # not in the end of the line alone
        return f"line {number:,} is {lines[1]} after a resume, and {lines[0]} without one"
    if not of_bytes:
        return ""
    sizes = mine.stat().st_size, theirs.stat().st_size
    grown = f"; it has {sizes[1]:,} bytes after a resume, and {sizes[0]:,} without one"
    return f"byte {at:,} is the first that differs{grown if sizes[0] != sizes[1] else ''}"


def _place_of_difference(mine: Path, theirs: Path) -> tuple[int, int] | None:
    """(offset in bytes, number of the line, from 1) of the first difference; None if there is none."""
    at, number = 0, 1
    with mine.open("rb") as one, theirs.open("rb") as other:
        while True:
            a, b = one.read(_BLOCK), other.read(_BLOCK)
            if a != b:
                both = zip(a, b, strict=False)
                same = next((i for i, (x, y) in enumerate(both) if x != y), min(len(a), len(b)))
                return at + same, number + a.count(b"\n", 0, same)
            if not a:
                return None
            at, number = at + len(a), number + a.count(b"\n")


def _around(path: Path, at: int) -> str | None:
    """The line of the byte ``at``, shortened, in quotes; ``missing`` if the file ends before it; None if it is no
    text."""
    begin = max(0, at - _BEFORE)
    with path.open("rb") as file:
        file.seek(begin)
        before, rest = file.read(at - begin), file.read(_SHOWN)
    head, line = before.rpartition(b"\n")[2], rest.partition(b"\n")[0]
    if not rest and not head:
        return "missing"
    # The first and the last character may be cut.
    text = (head + line).decode(errors="replace").strip("\ufffd").rstrip("\r")
    if "\ufffd" in text or not text.replace("\t", " ").isprintable() or (head + line and not text):
        return None
    cut = "…" if begin and head == before else "", "…" if len(line) == _SHOWN else ""
    return repr(f"{cut[0]}{text}{cut[1]}")
