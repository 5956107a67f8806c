"""Reads the records of a run as they grow: at first the end of each file, then only what was added."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.monitor.nvidia_smi import SmiLog, host_of, is_log
from rankup.monitor.series import RunSeries

FIRST = 400 * 1024  # bytes of each file at first: about a quarter of an hour
_CHUNK = 1 << 22


Parse = Callable[[Iterable[bytes]], Iterable[dict[str, Any]]]


def parse_json(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """A line that is cut is not JSON, and is passed over."""
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


class NewRecords:
    """Whole records that were appended to ``path`` since the last call; a file that is not there has none."""

    def __init__(self, path: str, first: int = FIRST, parse: Parse = parse_json) -> None:
        self._path = path
        self._parse = parse
        self._first = first
        self._offset: int | None = None
        self._partial = b""

    def read(self) -> Iterable[dict[str, Any]]:
        return self._parse(self._lines())

    def _lines(self) -> list[bytes]:
        """The first of all may lack its beginning."""
        try:
            with open(self._path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if self._offset is None:
                    self._offset = max(0, size - self._first)
                elif size < self._offset:  # another file of this name
                    self._offset, self._partial = 0, b""
                if size == self._offset:
                    return []
                file.seek(self._offset)
                chunk = file.read(_CHUNK)
        except OSError:
            return []
        self._offset += len(chunk)
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        return lines


def last_begin(path: str) -> dict[str, Any] | None:
    """The last ``begin`` record of ``steps.jsonl``, however far it is from the end."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
            at = whole.rfind(b'{"kind": "begin"')
            if at < 0:
                return None
            whole.seek(at)
            record = json.loads(whole.readline())
    except (OSError, ValueError):  # not there, empty, or cut
        return None
    return record if isinstance(record, dict) else None


class RunReader:
    """Reads the run directory into ``run`` with each ``update``."""

    def __init__(self, directory: RunDir) -> None:
        self.run = RunSeries()
        self._directory = directory
        self._files: dict[str, tuple[NewRecords, Callable[[dict[str, Any]], None]]] = {}

    def update(self) -> None:
        """Raises RankupError if the run directory is gone, or may not be read."""
        for name in sorted(self._names()):
            if name not in self._files and (add := self._adder(name)) is not None:
                path = str(self._directory.records / name)
                parse = SmiLog(host_of(name)).add if is_log(name) else parse_json
                self._files[name] = NewRecords(path, parse=parse), add
                if name == "steps.jsonl" and (begin := last_begin(path)) is not None:
                    add(begin)
        for records, add in self._files.values():
            for record in records.read():
                add(record)

    def _adder(self, name: str) -> Callable[[dict[str, Any]], None] | None:
        if is_log(name):
            return self.run.add_node
        if not name.endswith(".jsonl"):
            return None
        if name.startswith("rank-"):
            return self.run.add_rank
        if name.startswith("utilization-"):
            return self.run.add_node
        return self.run.add_step if name == "steps.jsonl" else None

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._directory.records)
        except FileNotFoundError:
            if not Path(self._directory.path).is_dir():
                raise RankupError(
                    "run-is-gone",
                    "the run directory is gone: it was deleted or moved",
                    context=str(self._directory.path),
                    hint="`rankup status` lists the runs that are there",
                    exit_code=1,
                ) from None
            return []
        except OSError as error:
            raise RankupError(
                "unreadable-records",
                f"cannot read the records of the run: {error.strerror}",
                context=str(self._directory.records),
                hint="only the owner of a run may read it; `ls -ld` shows the owner",
                exit_code=1,
            ) from error
