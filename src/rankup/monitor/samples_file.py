"""``records/utilization-HOST.jsonl``: one file for each host of a run, and one sampler that writes to it."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from typing import Any

_LONGEST = 200  # characters of a host in a file's name
_NAME = re.compile(r"[^A-Za-z0-9._-]")


def path_for(folder: str, host: str) -> str:
    """The file of ``host`` in the run directory ``folder``."""
    return f"{folder}/records/utilization-{file_name(host)}.jsonl"


def file_name(host: str) -> str:
    """``host`` as it can be part of a file's name."""
    return _NAME.sub("-", host).lstrip("._-")[:_LONGEST] or "host"


class SamplesFile:
    """Appends whole lines. It is not held open: a deleted file is noticed, and a network file system shows each line.

    Raises OSError if it cannot be made or written, or is gone.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":  # a sampler was killed in the middle of a line
                os.write(file, b"\n")
        finally:
            os.close(file)

    def append(self, record: dict[str, Any]) -> None:
        line = json.dumps(record).encode() + b"\n"
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        try:
            if os.write(file, line) < len(line):
                raise OSError(f"no room for a whole line: {self._path}")
        finally:
            os.close(file)


class Turn:
    """Who of several samplers of a run on this host writes: the one whose ``mine`` is true, until it ends.

    It is a name in the kernel, and not a lock on a file: it ends with its process, and no network file system has a
    part in it. Elsewhere than on Linux each sampler writes.
    """

    def __init__(self, folder: str, host: str) -> None:
        found = os.stat(folder)
        self._name = f"\0rankup-monitor/{found.st_dev}/{found.st_ino}/{host[:50]}"
        self._socket: socket.socket | None = None

    def mine(self) -> bool:
        if self._socket is None and sys.platform == "linux":
            one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                one.bind(self._name)
            except OSError:
                one.close()
                return False
            self._socket = one
        return True
