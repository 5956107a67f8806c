"""``metrics.csv``, of a training with a name ``metrics-NAME.csv``: one number per line, so that a new name needs no
new column."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankup.core.files import make_folder


class CsvLog:
    """Columns step, name, value. An attempt that resumes appends."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        make_folder(folder, purpose="log directory")
        training = facts.get("training")
        path = folder / (f"metrics-{training}.csv" if training else "metrics.csv")
        fresh = not path.exists()
        self._file = path.open("a", newline="", encoding="utf-8")
        self._rows = csv.writer(self._file)
        if fresh:
            self._rows.writerow(("step", "name", "value"))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._rows.writerows((step, name, value) for name, value in metrics.items())
        self._file.flush()

    def close(self) -> None:
        self._file.close()
