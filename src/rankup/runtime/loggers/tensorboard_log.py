"""TensorBoard: event files in ``tensorboard/`` of the run directory, of a training with a name in a folder of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from torch.utils.tensorboard import SummaryWriter

from rankup.runtime.loggers.earlier import EarlierAttempts


class TensorBoardLog:
    def __init__(self, folder: Path, facts: Mapping[str, Any], earlier: EarlierAttempts) -> None:
        self._writer = SummaryWriter(str(folder / "tensorboard" / facts.get("training", "")))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def drop_after(self, step: int) -> None:
        """As ``SummaryWriter(purge_step=…)`` does, whose step is not known yet when the writer is made."""
        start = SessionLog(status=SessionLog.START)
        writer = self._writer._get_file_writer()  # type: ignore[no-untyped-call]
        writer.add_event(Event(step=step + 1, session_log=start))

    def close(self) -> None:
        self._writer.close()
