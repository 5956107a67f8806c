"""Facts as short checked lines on a stream that others write to as well.

srun mixes the output of tasks in the middle of lines that are longer than a few kilobytes (measured: 5,000 characters
of four tasks), a site's prologue prints what it likes, and a process may die in the middle of a line. So a document,
one JSON object, is cut into lines of less than 1,000 characters, each with the tag of its examination, its number,
its length and a checksum. What does not fit together is ignored; the judges see that it is missing.
"""

from __future__ import annotations

import json
import re
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

_PIECE = 800  # characters of a line's payload
_KEPT = 40  # lines of others that are kept: they may tell why an agent did not start
_HEAD = re.compile(
    r"@rankup-doctor:(?P<tag>\w+):(?P<node>\d+):(?P<number>\d+):(?P<piece>\d+)/(?P<pieces>\d+)"
    r":(?P<check>[0-9a-f]{8}):(?P<length>\d+):"
)

Document = dict[str, Any]


def lines_of(document: Document, tag: str, node: int, number: int) -> list[str]:
    """The lines of ``document``; ``number`` tells the documents of a node apart."""
    text = json.dumps(document)
    pieces = [text[i : i + _PIECE] for i in range(0, len(text), _PIECE)]
    return [
        f"@rankup-doctor:{tag}:{node}:{number}:{i}/{len(pieces)}:{zlib.crc32(piece.encode()):08x}:{len(piece)}:{piece}"
        for i, piece in enumerate(pieces)
    ]


class Writer:
    """Prints documents of one node, from any thread."""

    def __init__(self, tag: str, node: int, write: Callable[[bytes], object]) -> None:
        self._tag, self._node, self._write = tag, node, write
        self._number = 0
        self._lock = threading.Lock()

    def say(self, part: str, facts: Any, *, rank: int | None = None) -> None:
        document = {"node": self._node, "part": part, "time": time.time(), "facts": facts}
        document |= {} if rank is None else {"rank": rank}
        with self._lock:
            for line in lines_of(document, self._tag, self._node, self._number):
                # A line feed before it as well: what somebody else has begun ends there.
                self._write(f"\n{line}\n".encode())
            self._number += 1


class Reader:
    """Finds the documents of one examination in a stream, fed with whatever has come."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self._rest = b""
        self._pieces: dict[tuple[int, int], dict[int, str]] = {}
        self.noise: list[str] = []
        self.damaged = 0  # lines of ours that were cut off or overwritten

    def feed(self, data: bytes) -> list[Document]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = [self._line(line.decode(errors="replace")) for line in lines]
        return [document for document in found if document is not None]

    def end(self) -> list[Document]:
        """What a last line without a line feed holds."""
        return self.feed(b"\n") if self._rest else []

    def _line(self, line: str) -> Document | None:
        head = next((one for one in _HEAD.finditer(line) if one["tag"] == self.tag), None)
        if head is None:
            if line.strip() and len(self.noise) < _KEPT:
                self.noise.append(line.strip()[:400])
            return None
        payload = line[head.end() : head.end() + int(head["length"])]
        if f"{zlib.crc32(payload.encode()):08x}" != head["check"]:
            self.damaged += 1
            return None
        key, count = (int(head["node"]), int(head["number"])), int(head["pieces"])
        pieces = self._pieces.setdefault(key, {})
        pieces[int(head["piece"])] = payload
        if len(pieces) < count:
            return None
        try:
            document = json.loads("".join(pieces[i] for i in range(count)))
        except (ValueError, KeyError):
            self.damaged += 1
            return None
        del self._pieces[key]
        return document if isinstance(document, dict) else None
