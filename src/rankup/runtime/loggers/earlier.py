"""One training is one run of W&B and of MLflow, however many attempts it takes.

What earlier attempts have told follows from the records of the run. A logger that can take nothing back tells only what
is new (``untold``); one that begins anew tells first what was told before the snapshot (``kept``).
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankup.core.files import write_atomic
from rankup.core.records import newest_records, read_records

FILE = "loggers.json"


class EarlierAttempts:
    """Of one training, as of now. ``run`` None: nothing is kept, and each process is the first attempt."""

    def __init__(self, run: Path | None, training: str) -> None:
        self._run, self._training = run, training
        known = run is not None and any(training in ids for ids in self._idents().values())
        self._records = _records(run / "records", training) if run is not None and known else []

    def ident(self, logger: str) -> str | None:
        """Under which id ``logger`` knows this training; None in the first attempt."""
        return self._idents().get(logger, {}).get(self._training)

    def keep(self, logger: str, ident: str) -> None:
        if self._run is None:
            return
        idents = self._idents()
        idents.setdefault(logger, {})[self._training] = ident
        write_atomic(self._run / FILE, json.dumps(idents, indent=2) + "\n", mode=0o600)

    def untold(self, step: int, metrics: Mapping[str, float]) -> dict[str, float]:
        """Those of ``metrics`` that no earlier attempt has told of this step, or of a later one."""
        return {name: value for name, value in metrics.items() if step > self._last.get(name, -1)}

    def kept(self, step: int) -> list[tuple[int, dict[str, float]]]:
        """(step, numbers) of all that was told up to ``step``, in this order, without what was trained again."""
        told: dict[int, dict[str, float]] = {}
        for one in newest_records(self._records):
            if one.get("metrics") and one["global_step"] <= step:
                numbers = {name: math.nan if n is None else n for name, n in one["metrics"].items()}
                told.setdefault(one["global_step"], {}).update(numbers)
        return sorted(told.items())

    @functools.cached_property
    def _last(self) -> dict[str, int]:
        """Name → the last step of which it was told."""
        last: dict[str, int] = {}
        for one in self._records:
            for name in one.get("metrics") or ():
                last[name] = max(last.get(name, -1), one["global_step"])
        return last

    def _idents(self) -> dict[str, dict[str, str]]:
        """Logger → training → id."""
        try:
            return dict(json.loads((self._run / FILE).read_text())) if self._run is not None else {}
        except FileNotFoundError:
            return {}


def _records(folder: Path, training: str) -> list[dict[str, Any]]:
    """Those of ``training``, as they were written. An epoch's record has all of its numbers, most of which a step's has
    told: it counts for those that no step's tells."""
    steps = [one for one in read_records(folder / "steps.jsonl") if one.get("training", "") == training]
    of_steps = {name for one in steps for name in one.get("metrics") or ()}
    epochs = [
        {**one, "metrics": {name: n for name, n in one["metrics"].items() if name not in of_steps}}
        for one in read_records(folder / "epochs.jsonl", "epoch")
        if one.get("training", "") == training
    ]
    return sorted((*steps, *epochs), key=lambda one: float(one["time"]))
