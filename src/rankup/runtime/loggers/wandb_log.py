"""W&B. Nothing leaves the machine unasked: it is offline unless ``WANDB_MODE`` says otherwise."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankup.runtime.loggers.earlier import EarlierAttempts


class WandbLog:
    """All attempts are one run of W&B.

    With a server W&B goes on with the run (``resume="allow"``), and takes nothing back that it has got: each number is
    told once. Offline it cannot go on, and a process that is killed loses what W&B has not written yet: so each attempt
    tells all from the beginning, up to its snapshot, and replaces the one before when it is uploaded
    (``wandb sync FOLDER/wandb``).
    """

    def __init__(self, folder: Path, facts: Mapping[str, Any], earlier: EarlierAttempts) -> None:
        self._earlier = earlier
        ident = earlier.ident("wandb")
        again = ident is not None
        if ident is None:
            ident = secrets.token_hex(8)
            earlier.keep("wandb", ident)
        mode = os.environ.get("WANDB_MODE", "offline")
        name = "-".join(filter(None, (folder.name, facts.get("training"))))
        self._settings: dict[str, Any] = {
            "dir": str(folder),
            "mode": mode,
            "name": name,
            "id": ident,
            "config": dict(facts),
        }
        self._begins_anew = mode == "offline" and again
        if mode != "offline":
            self._settings["resume"] = "allow"
        self._told_again = -1  # the last step
        # An attempt that tells nothing must not replace one that did.
        self._run: Any = None if self._begins_anew else self._open()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._run is None:  # outside of a loop
            self.drop_after(step)
        untold = metrics if self._settings["mode"] == "offline" else self._earlier.untold(step, metrics)
        if untold:
            # An epoch's number may come at the very step at which W&B has closed the attempt before.
            self._run.log(dict(untold), step=max(step, self._run.starting_step))

    def drop_after(self, step: int) -> None:
        if not self._begins_anew:
            return
        self._run = self._run or self._open()
        for before, numbers in self._earlier.kept(step):
            if before > self._told_again:
                self._run.log(numbers, step=before)
        self._told_again = step

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()

    def _open(self) -> Any:
        import wandb

        # create_new: a second training of this process is not the first one's run.
        return wandb.init(**self._settings, reinit="create_new")
