"""Records: what a run says of itself, one JSON object per line, so that a run that was killed can still be read."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any


class RecordWriter:
    """Appends records to one file. Each line is written whole and flushed; a reader may follow the file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        cut = _ends_within_a_line(path)
        self._file = path.open("a", encoding="utf-8")
        if cut:  # the line stays one of its own
            self._file.write("\n")

    def write(self, kind: str, **fields: Any) -> None:
        """One record: ``{"kind": kind, "time": epoch seconds, **fields}``."""
        self._file.write(json.dumps({"kind": kind, "time": round(time.time(), 3), **fields}) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _ends_within_a_line(path: Path) -> bool:
    """Whether a writer was killed in a line: the next record would be lost with it."""
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:  # no file yet, or an empty one
        return False


def read_records(path: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """All whole records of ``path`` (of one kind); a missing file has none, a line cut by a crash is left out."""
    return list(_parse(path, kind)) if path.exists() else []


def newest_records(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of ``records`` (of a training, with its ``begin`` records) that a later attempt did not train again.

    An attempt that resumes at step 40 trains step 41 again: what the attempts before wrote of it is left out.
    """
    kept: list[dict[str, Any]] = []
    for record in records:
        if record.get("kind") == "begin":
            at, name = record.get("global_step", 0), record.get("training")
            kept = [one for one in kept if one.get("training") != name or one.get("global_step", 0) <= at]
        kept.append(record)
    return kept


def _parse(path: Path, kind: str | None) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(record, dict) and kind in (None, record.get("kind")):
                yield record
