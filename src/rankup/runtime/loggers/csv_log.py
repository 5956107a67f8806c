"""``metrics.csv``, of a training with a name ``metrics-NAME.csv``: one number per line, so that a new name needs no
new column."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankup.core.files import make_folder, write_atomic
from rankup.runtime.loggers.earlier import EarlierAttempts


class CsvLog:
    """Columns step, name, value. An attempt that resumes appends; what it trains again is told once."""

    def __init__(self, folder: Path, facts: Mapping[str, Any], earlier: EarlierAttempts) -> None:
        make_folder(folder, purpose="log directory")
        training = facts.get("training")
        self._path = folder / (f"metrics-{training}.csv" if training else "metrics.csv")
        fresh = not self._path.exists()
        self._open()
        if fresh:
            self._rows.writerow(("step", "name", "value"))

    def _open(self) -> None:
        self._file = self._path.open("a", newline="", encoding="utf-8")
        self._rows = csv.writer(self._file)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._rows.writerows((step, name, value) for name, value in metrics.items())
        self._file.flush()

    def drop_after(self, step: int) -> None:
        self._file.close()
        with self._path.open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        # A crash may have cut the last row.
        kept = [row for row in rows if len(row) == 3 and row[0].isdecimal() and int(row[0]) <= step]
        if kept != rows:
            text = io.StringIO(newline="")
            csv.writer(text).writerows([header, *kept])
            write_atomic(self._path, text.getvalue())
        self._open()

    def close(self) -> None:
        self._file.close()
