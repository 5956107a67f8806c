"""Follows a file that somebody else appends to, line by line."""

from __future__ import annotations

from pathlib import Path

_CHUNK = 1 << 20


class Tail:
    """Whole lines of ``path`` as they appear; a file that does not exist yet has none. ``offset``: where to begin."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self._offset = offset
        self._partial = b""

    def read(self) -> list[str]:
        """The lines completed since the last call, without their ends; at most about a megabyte at a time."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                chunk = file.read(_CHUNK)
        except OSError:  # not there yet, or not any more
            return []
        self._offset += len(chunk)
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        return [_shown(line) for line in lines]

    def rest(self) -> list[str]:
        """Everything that is left, also a last line without an end."""
        lines: list[str] = []
        before = -1
        while self._offset != before:
            before = self._offset
            lines += self.read()
        if self._partial:
            lines.append(_shown(self._partial))
            self._partial = b""
        return lines


def size_of(path: Path) -> int:
    """How long the file is now, to follow what is added; 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _shown(line: bytes) -> str:
    """A line as a terminal would leave it: what a carriage return overwrote (a progress bar) is gone."""
    text = line.decode(errors="replace").rstrip("\r")
    return text.rsplit("\r", 1)[-1]
