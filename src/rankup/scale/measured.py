"""One run as its own records tell it: what was really done, never what was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankup.core.records import read_records
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.scale.grid import Trial


@dataclass(frozen=True)
class Measured:
    """``summary`` is the run's record of that kind; ``steps`` counts optimizer steps; ``path`` is its directory."""

    turn: Trial
    summary: Mapping[str, Any]
    steps: int
    path: Path

    @property
    def processes(self) -> int:
        """Over all nodes, as the run itself counted them."""
        return int(self.summary["world_size"])

    @property
    def nodes(self) -> int:
        return int(self.summary["nodes"])

    @property
    def threads(self) -> int:
        """Per process."""
        return int(self.summary["threads"])

    @property
    def seconds(self) -> float:
        """Wall time of the training epochs: without start-up, data, and evaluation."""
        return float(self.summary["train_seconds"])

    @property
    def accuracy(self) -> float:
        """Share of right answers on the test data after the last epoch."""
        return float(self.summary["test_accuracy"])

    @property
    def on_cpu(self) -> bool:
        return bool(self.summary["device_type"] == "cpu")

    def fact(self, name: str) -> Any:
        """What the run says of itself under ``name``."""
        return self.steps if name == "steps" else self.summary.get(name)


def read_run(turn: Trial, run: RunDir) -> Measured:
    """Read the records of a run that has ended well. Raises ``no-summary`` where they are not complete."""
    path = run.records / "epochs.jsonl"
    summaries = read_records(path, "summary")
    if len(summaries) != 1:
        raise RankupError(
            "no-summary",
            f"a run ended well but left {len(summaries)} summaries instead of one",
            context=str(path),
            hint="on several nodes, the runs directory has to be one that all of them see: --runs-root",
            exit_code=1,
        )
    steps = sum(int(epoch["steps"]) for epoch in read_records(path, "epoch"))
    return Measured(turn, summaries[0], steps, run.path)
