"""What a logger is, and which there are."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from rankup.core.registry import load, target_of
from rankup.errors import RankupError
from rankup.runtime.loggers.earlier import EarlierAttempts

LOGGERS = {
    "csv": "rankup.runtime.loggers.csv_log:CsvLog",
    "tensorboard": "rankup.runtime.loggers.tensorboard_log:TensorBoardLog",
    "wandb": "rankup.runtime.loggers.wandb_log:WandbLog",
    "mlflow": "rankup.runtime.loggers.mlflow_log:MlflowLog",
}
_PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}


class Logger(Protocol):
    """Made on rank 0 when a loop begins, with the folder of the run, the facts of the training, and what earlier
    attempts have told of it."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """``metrics`` after ``step`` steps."""

    def drop_after(self, step: int) -> None:
        """This attempt trains on from ``step``: what earlier attempts told of later steps comes again. A logger that
        can take nothing back leaves that out (``earlier``)."""

    def close(self) -> None:
        """The training is over, or its process ends."""


def logger_names(text: str) -> tuple[str, ...]:
    """``"csv,wandb"`` → the names. Raises RankupError for one that does not exist or whose package is missing."""
    names = tuple(dict.fromkeys(word for word in text.replace(",", " ").split()))
    for name in names:
        target_of("logger", name, LOGGERS)
        package = _PACKAGES.get(name)
        if package is not None and find_spec(package) is None:
            raise RankupError(
                "missing-package",
                f"the logger {name} requires the package {package}, which is not installed",
                hint=f"pip install {package}, or log to csv, which requires nothing",
            )
    return names


def open_loggers(
    names: tuple[str, ...], folder: Path, facts: Mapping[str, Any], earlier: EarlierAttempts
) -> list[Logger]:
    """The loggers of one training. ``folder`` is the run directory, or the current one without a run."""
    made: list[Logger] = []
    for name in names:
        kind: Any = load(LOGGERS[name])
        made.append(kind(folder, facts, earlier))
    return made
