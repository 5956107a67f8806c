"""W&B. Nothing leaves the machine unasked: it is offline unless ``WANDB_MODE`` says otherwise."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class WandbLog:
    """``wandb sync FOLDER/wandb/offline-run-*`` uploads an offline run later."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        import wandb

        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self._run = wandb.init(dir=str(folder), mode=mode, config=dict(facts), name=folder.name)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def drop_after(self, step: int) -> None:
        """Each attempt is a run of its own there."""

    def close(self) -> None:
        self._run.finish()
