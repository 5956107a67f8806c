"""Where ``rankup verify`` hooks into torch, to see what any script does: ``ScriptTrace`` and ``SAVES`` are told."""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.optim import optimizer as hooks
from torch.utils.data import dataloader

from rankup.runtime.distributed.shutdown import settle
from rankup.runtime.tracing.any_script import VARIABLE, ScriptTrace, has_run
from rankup.runtime.tracing.saves import SAVES
from rankup.runtime.tracing.written_files import watch_files


def record() -> None:
    """From now on, in this process. Where rankup's own loop is traced, that is enough."""
    rank = int(os.environ.get("RANK", "0"))
    watch_files(rank)
    script = ScriptTrace(rank, Path(os.environ[VARIABLE]))
    hooks.register_optimizer_step_pre_hook(script.before_step)
    hooks.register_optimizer_step_post_hook(script.after_step)
    between, loader, scaler = script.between, dataloader._BaseDataLoaderIter, torch.amp.GradScaler
    for owner, name, note, fails in (
        (loader, "_next_index", between.index, None),
        (loader, "_reset", between.begins_epoch, None),
        (loader, "__next__", between.batch, between.exhausted),
        (torch.Tensor, "backward", script.loss, None),
        (torch.optim.Optimizer, "zero_grad", script.zeroed, None),
        (torch.nn.Module, "zero_grad", script.zeroed, None),
        (torch.nn.Module, "eval", between.evaluates, None),
        (scaler, "__init__", between.scaler, None),
        (scaler, "step", script.scaled_step, None),
    ):
        _wrap(owner, name, note, fails)
    if dist.is_available():
        _settle_before_collectives()
        _calm_before_the_group_ends()
    atexit.register(script.exit)
    os.register_at_fork(after_in_child=script.forked)


def _wrap(
    owner: Any, name: str, note: Callable[[Any, Any], None], exhausted: Callable[[Any], None] | None
) -> None:
    """Call ``note`` with the first argument and what ``name`` gives, after each call, and ``exhausted`` after a
    StopIteration; not in a process whose loop rankup traces."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **options: Any) -> Any:
        try:
            given = original(*args, **options)
        except StopIteration:
            if exhausted is not None and not has_run():
                SAVES.settles()
                exhausted(args[0])
            raise
        if not has_run():
            SAVES.settles()
            note(args[0], given)
        return given

    setattr(owner, name, wrapped)


def _settle_before_collectives() -> None:
    """What a rank has written is complete once it takes part in a collective: the others go on from it. Each of them
    asks first whether this rank is in its group; so does ``get_rank``, which may come in the middle of a save."""
    from torch.distributed import distributed_c10d as c10d

    original = getattr(c10d, "_rank_not_in_group", None)  # torch's own: another version may do without
    if original is None:
        return

    @functools.wraps(original)
    def asked(*args: Any, **options: Any) -> bool:
        if not sys._getframe(1).f_code.co_name.startswith("get_"):
            SAVES.settles()
        return bool(original(*args, **options))

    c10d._rank_not_in_group = asked


def _calm_before_the_group_ends() -> None:
    """A proof is of the resume, and not of torch, which may hang here if a thread of gloo still holds the last tensors
    (docs/how-to/frameworks.md)."""
    original = dist.destroy_process_group

    @functools.wraps(original)
    def destroyed(*args: Any, **options: Any) -> None:
        settle()
        original(*args, **options)

    dist.destroy_process_group = destroyed
