"""Reads any file as lines, in bounded memory: head and tail of a large one, with a window around its first traceback.

A log may be compressed, binary, cut off, of another encoding, without a line end for megabytes, or unreadable.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

HEAD, TAIL = 8 << 20, 40 << 20  # bytes that are looked at
_WINDOW = 1 << 20  # and so much from the first traceback between them
_CHUNK = 1 << 20
_LONGEST = 8192  # bytes of a line; of a longer one head and tail
_TRACEBACK = b"Traceback (most recent call last)"


@dataclass
class LogFile:
    """A log and what is wrong with it. ``name`` is how it is quoted."""

    path: Path
    name: str
    trouble: str = ""  # why it could not be read, or not to its end
    skipped: int = 0  # bytes in its middle that were not looked at
    empty: bool = field(default=True, repr=False)

    def lines(self) -> Iterator[tuple[int, str]]:
        """(number from 1, text) of each line. A carriage return ends a line too, with the same number."""
        for number, raw in _numbered(self._pieces()):
            for part in raw.split(b"\r"):
                if part := part.strip(b"\0"):
                    self.empty = False
                    yield number, _short(part).decode(errors="replace")

    def _pieces(self) -> Iterator[bytes | int]:
        """Bytes that are looked at, and the number of lines that were left out between them."""
        chunks = self._chunks()
        left = HEAD
        for chunk in chunks:
            yield chunk
            left -= len(chunk)
            if left <= 0:
                break
        kept: deque[bytes] = deque()
        size, window, begun, before = 0, 0, False, b""
        for chunk in chunks:
            kept.append(chunk)
            size += len(chunk)
            if size <= TAIL:
                continue
            gone = kept.popleft()
            size -= len(gone)
            # The first traceback in the middle, also if it crosses from one chunk to the next.
            if not begun and _TRACEBACK in before + gone:
                begun, window = True, _WINDOW
            if window > 0:
                yield gone
                window -= len(gone)
            else:
                self.skipped += len(gone)
                yield gone.count(b"\n")
            before = gone[-len(_TRACEBACK) :]
        yield from kept

    def _chunks(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                magic = file.read(4)
                file.seek(0)
                source = gzip.GzipFile(fileobj=file) if magic[:2] == b"\x1f\x8b" else file
                encoding = "utf-16" if magic[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
                decoder = codecs.getincrementaldecoder(encoding)(errors="replace") if encoding else None
                while chunk := source.read1(_CHUNK):  # what there is, also before an end that is missing
                    yield decoder.decode(chunk).encode(errors="replace") if decoder else chunk
        except (OSError, EOFError, zlib.error) as error:
            self.trouble = getattr(error, "strerror", None) or str(error) or type(error).__name__


def _numbered(pieces: Iterator[bytes | int]) -> Iterator[tuple[int, bytes]]:
    number, rest = 1, b""
    for piece in pieces:
        if isinstance(piece, int):
            if rest:
                yield number, rest
                rest = b""
            number += piece
            continue
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield number, line
            number += 1
        if len(rest) > _CHUNK:  # a line without an end
            rest = _short(rest)
    if rest:
        yield number, rest


def _short(line: bytes) -> bytes:
    if len(line) <= _LONGEST:
        return line
    return line[: _LONGEST // 2] + b" ... " + line[-_LONGEST // 2 :]
