"""In a rank of ``rankup run``, whatever its script is: does it train a model that no other rank trains? And how many
steps does it take, if a study compares it with other runs?

torch (2.5 and later) calls ``watch`` at the end of its own import, since this directory is on PYTHONPATH and says so
in its entry points. A script that does not import torch never gets here. After an optimizer's step of a process that
is in no process group, there is the file ``trained-alone-RANK`` in the run directory; a group that is formed later
takes it away again. At the end of rank 0 there is the file ``optimizer-steps`` if a variable asks for it. torchrun's
own process logs no stacks about nodes that it no longer waits for. Nothing here may raise, nor cost a step more than a
few comparisons.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import Any


def watch() -> None:
    """The entry point."""
    with contextlib.suppress(Exception):  # it would end the import of torch
        run, rank = os.environ.get("RANKUP_RUN_DIR", ""), os.environ.get("RANK", "")
        if run and not rank:
            logging.getLogger(_AGENT).addFilter(_counts)
        if not (run and rank.isdecimal()):
            return
        torch, optimizers = sys.modules["torch"], sys.modules["torch.optim.optimizer"]
        register: Any = optimizers
        if os.environ.get("WORLD_SIZE", "1") != "1":
            hook = _Hook(torch, Path(run, f"trained-alone-{rank}"))
            register.register_optimizer_step_post_hook(hook)
        if rank == "0" and os.environ.get("RANKUP_COUNT_OPTIMIZER_STEPS"):
            count = _Count(torch)
            register.register_optimizer_step_pre_hook(count.before)
            register.register_optimizer_step_post_hook(count.after)
            atexit.register(count.write, Path(run, "optimizer-steps"))


_AGENT = "torch.distributed.elastic.agent.server.api"


def _counts(record: logging.LogRecord) -> bool:
    """All but one message. After its ranks have ended well, torchrun waits 300 s for those of the other nodes. That it
    gives up then, which takes it 28 lines, changes nothing about the end of the run."""
    return not str(record.msg).startswith("Error waiting on exit barrier")


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


class _Count:
    """Steps of all optimizers. One that another takes inside of its own is the same step."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._steps = self._depth = 0
        self._pid = os.getpid()

    def before(self, *_: object) -> None:
        if not self._torch.compiler.is_compiling():
            self._depth += 1

    def after(self, *_: object) -> None:
        if not self._torch.compiler.is_compiling():
            self._depth -= 1
            self._steps += self._depth == 0

    def write(self, path: Path) -> None:
        # Compiled steps are not counted: 0 would be a wrong number.
        if self._steps and os.getpid() == self._pid:
            with contextlib.suppress(OSError):
                path.write_text(str(self._steps))
