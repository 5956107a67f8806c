"""In a rank of ``rankup run``, whatever its script is: does it train a model that no other rank trains?

torch (2.5 and later) calls ``watch`` at the end of its own import, since this directory is on PYTHONPATH and says so
in its entry points. A script that does not import torch never gets here. After an optimizer's step of a process that
is in no process group, there is the file ``trained-alone-RANK`` in the run directory; a group that is formed later
takes it away again. Nothing here may raise, nor cost a step more than a few comparisons.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any


def watch() -> None:
    """The entry point."""
    with contextlib.suppress(Exception):  # it would end the import of torch
        run, rank = os.environ.get("RANKUP_RUN_DIR", ""), os.environ.get("RANK", "")
        if run and rank.isdecimal() and os.environ.get("WORLD_SIZE", "1") != "1":
            hook = _Hook(sys.modules["torch"], Path(run, f"trained-alone-{rank}"))
            optimizers: Any = sys.modules["torch.optim.optimizer"]
            optimizers.register_optimizer_step_post_hook(hook)


class _Hook:
    """Called after each step of each optimizer."""

    def __init__(self, torch: Any, mark: Path) -> None:
        self._torch, self._mark = torch, mark
        self._through = self._marked = False

    def __call__(self, optimizer: object, args: object, kwargs: object) -> None:
        # Under torch.compile this is a constant, and nothing of what follows is traced.
        if self._through or self._torch.compiler.is_compiling():
            return
        group = self._torch.distributed
        try:
            if group.is_available() and group.is_initialized() and group.get_world_size() > 1:
                self._through = True
                self._mark.unlink(missing_ok=True)
            elif not self._marked:
                self._marked = True
                self._mark.touch(mode=0o600)
        except OSError:
            self._through = True  # there is no telling any more
