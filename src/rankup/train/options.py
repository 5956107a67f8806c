"""What ``rankup train`` was asked for, as one plain object that crosses from the command line to every rank."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rankup.errors import RankupError


@dataclass(frozen=True)
class TrainOptions:
    """``workload`` is an import target ``module:Class``; ``name`` what people call it. Batches in samples."""

    workload: str
    name: str
    data: str = "digits"
    epochs: int = 5
    global_batch: int = 64
    test_batch: int = 1000
    lr: float = 1e-3
    optimizer: str = "adam"
    gamma: float = 0.7
    seed: int = 0
    device: str = "auto"
    precision: str = "fp32"
    log_interval: int = 0
    dry_run: bool = False
    save_model: str | None = None
    log: str | None = None
    bar: bool = False  # whether someone draws a progress bar from the records, so that no lines are needed
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require(self.epochs >= 1, "--epochs", self.epochs, "1 or more")
        _require(self.global_batch >= 1, "--global-batch", self.global_batch, "1 or more")
        _require(self.test_batch >= 1, "--test-batch", self.test_batch, "1 or more")
        _require(self.lr > 0, "--lr", self.lr, "greater than 0")
        _require(0 < self.gamma <= 1, "--gamma", self.gamma, "in (0, 1]")
        _require(self.log_interval >= 0, "--log-interval", self.log_interval, "0 (by time) or more steps")
        _require(self.optimizer in OPTIMIZERS, "--optimizer", self.optimizer, " or ".join(OPTIMIZERS))
        _require(self.precision in PRECISIONS, "--precision", self.precision, " or ".join(PRECISIONS))
        _require(self.device in DEVICES, "--device", self.device, " or ".join(DEVICES))
        _require(self.log in (None, "tensorboard"), "--log", self.log, "tensorboard")
        if self.save_model is not None:
            _check_writable(Path(self.save_model))

    def to_json(self) -> str:
        """One line, for a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TrainOptions:
        return cls(**json.loads(text))


OPTIMIZERS = ("adam", "adadelta", "sgd")
PRECISIONS = ("fp32", "bf16", "fp64")
DEVICES = ("auto", "cpu", "cuda")


def _require(right: bool, flag: str, value: object, allowed: str) -> None:
    if not right:
        raise RankupError("bad-option", f"{flag} {value} cannot be", hint=f"{flag} is {allowed}")


def _check_writable(path: Path) -> None:
    """Before hours of training, not after."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise RankupError(
            "unwritable-model",
            f"--save-model {path} cannot be written",
            hint="a file in a directory that exists",
        )
