"""Loss and accuracy of a workload over many batches, by the run's meter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankup.runtime.api import Run
from rankup.runtime.loop.meter import Means
from rankup.train.workload import Workload


@dataclass(frozen=True)
class EvaluationResult:
    """Over all ranks: the mean loss, the share of right answers in [0, 1], and the number of samples."""

    loss: float
    accuracy: float
    samples: int

    @classmethod
    def of(cls, means: Means) -> EvaluationResult:
        return cls(means.get("loss", 0.0), means.get("accuracy", 0.0), int(means.counts.get("loss", 0)))


def measure(run: Run, workload: Workload, loss: Any, output: Any, target: Any) -> None:
    """Add a batch to ``run.meter``. ``loss`` is its mean. If another rank counts the batch, nothing is added."""
    if run.batch.samples:
        run.meter.add(loss=loss)
        run.meter.add(accuracy=workload.correct(output, target), reduction="sum")
