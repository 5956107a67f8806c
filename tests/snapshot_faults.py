"""Tiny states that can be told apart, and saves that are killed or refused at a chosen operation."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from typing import Any

import torch

from ranks import context
from rankup.snapshots import disk, plan
from rankup.snapshots.layout import Retention
from rankup.snapshots.saver import Saver
from rankup.snapshots.snapshot import Snapshot
from rankup.snapshots.state import SnapshotState
from rankup.world import World

ALONE = World()


def tensors(step: int) -> dict[str, Any]:
    """What a model and an optimizer are at ``step``; zeros at step 0."""
    return {
        "model": {"weight": torch.full((3, 5), float(step)), "bias": torch.full((5,), 0.5 * step)},
        "optimizer": {
            "state": {"weight": {"step": torch.tensor(float(step)), "exp_avg": torch.full((3, 5), step / 3)}},
            "param_groups": [{"lr": 0.1 * step, "betas": (0.9, 0.999), "params": ["weight"]}],
        },
    }


def state(step: int) -> SnapshotState:
    own = {"rng": torch.full((8,), step, dtype=torch.uint8), "last": (step, None)}
    return SnapshotState(tensors(step), own, {"step": step, "metrics": {"loss": 1 / (step + 1)}})


def loaded(found: Snapshot) -> int:
    """The step whose state ``found`` holds, all of it and nothing else; fails where it is a mixture."""
    into = tensors(0)
    found.load_tensors(into)
    step = int(into["model"]["weight"][0, 0])
    expected = state(step)
    assert repr(into) == repr(expected.tensors)
    assert repr(found.rank_state()) == repr(expected.rank_state)
    assert found.metadata == expected.metadata
    assert found.step == step
    return step


def resumed(root: Path, world: World = ALONE) -> int | None:
    """The step that a run of one process would resume from; None where it would begin."""
    with Saver(root, world, patience=0) as saver:
        found = saver.newest()
        return None if found is None else loaded(found)


def saved(root: Path, *steps: int, keep: int = 2) -> Path:
    """Save the states of ``steps``, one after the other."""
    with Saver(root, ALONE, keep=Retention(last=keep)) as saver:
        for step in steps:
            saver.save(step, state(step))
    return root


class At:
    """For ``disk.before``: does something at the n-th operation. ``seen`` lists them all, as (what, path)."""

    def __init__(self, number: int = -1, failure: int | None = None) -> None:
        self.seen: list[tuple[str, Path]] = []
        self._number = number
        self._failure = failure

    def __call__(self, what: str, path: Path) -> None:
        self.seen.append((what, path))
        if len(self.seen) - 1 == self._number:
            if self._failure is None:
                os.kill(os.getpid(), signal.SIGKILL)
            else:
                raise OSError(self._failure, os.strerror(self._failure), str(path))


def operations(root: Path, step: int, keep: int) -> list[tuple[str, Path]]:
    """Save one more step, and what was done on disk for it."""
    at = At()
    with Saver(root, ALONE, keep=Retention(last=keep)) as saver:
        disk.before = at
        try:
            saver.save(step, state(step))
            saver.wait()
        finally:
            disk.before = None
    return at.seen


def save_with(root: Path, step: int, keep: int, hook: At) -> None:
    """A save with ``hook`` in it; for a process of its own, or a rank."""
    plan.SHARE = 1  # every rank writes, however little there is
    world = World.detect()
    if world.world_size > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")
    saver = Saver(root, world, keep=Retention(last=keep))
    disk.before = hook
    saver.save(step, state(step))
    saver.wait()


def killed(root: Path, step: int, keep: int, number: int) -> int:
    """Save in a process that is killed at an operation; its exit code."""
    process = context.Process(target=save_with, args=(root, step, keep, At(number)))
    process.start()
    process.join()
    code = process.exitcode
    process.close()
    assert code is not None
    return code


def flip(path: Path, bit: int) -> None:
    """Turn one bit over."""
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


FULL = errno.ENOSPC
