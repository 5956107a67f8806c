"""Staging from a GPU into pinned memory; an exact resume there; and snapshots that move between GPU and CPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from small import BATCH, GPU, Net, adam, images, largest_difference
from torch.nn import functional as F

import rankup
from ranks import run_ranks
from rankup.runtime.checkpointing import stop
from rankup.runtime.checkpointing.policy import Snapshots
from rankup.runtime.init import deterministic_kernels
from rankup.snapshots.saver import Saver
from rankup.snapshots.state import SnapshotState
from snapshot_faults import ALONE


def staged(directory: str) -> tuple[bool, list[bool]]:
    """Twice: the second save goes into the buffers of the first. Whether they are pinned, and what was read back."""
    live = {str(number): torch.full((1000, 1000), float(number), device=GPU) for number in range(20)}
    right = []
    with Saver(Path(directory), ALONE) as saver:
        for step in (1, 2):
            saver.save(step, SnapshotState(live, rank_state={"rng": torch.cuda.get_rng_state()}))
            for tensor in live.values():
                tensor.add_(1)
            found = saver.newest()
            assert found is not None and found.step == step
            into = {name: torch.zeros_like(tensor) for name, tensor in live.items()}
            found.load_tensors(into)
            right.append(all(bool((into[name] == int(name) + step - 1).all()) for name in live))
        pinned = all(buffer.is_pinned() for name, buffer in saver._staging._buffers.items() if name in live)
    return pinned, right


def test_a_copy_from_a_gpu_is_pinned_and_is_of_the_moment_of_the_save(tmp_path):
    assert run_ranks(staged, 1, str(tmp_path)) == [(True, [True, True])]


def attempt(directory: str, stop_at: int | None, precision: str, device: str = GPU) -> dict[str, Any]:
    """Dropout, BatchNorm and fused Adam over three epochs; each step's loss."""
    os.environ["RANKUP_RUN_DIR"] = directory
    stop.AGREE_EVERY_S = 0.0
    deterministic_kernels()
    run = rankup.init(seed=3, precision=precision, device=device, snapshots=Snapshots(every="off"))
    model, opt, feed = run.prepare(
        Net(dropout=0.3), adam, rankup.ResidentData(*images()), global_batch=BATCH, clip=1.0
    )
    losses: dict[int, float] = {}
    first: dict[str, torch.Tensor] = {}
    try:
        for x, y in run.steps(feed, epochs=3):
            first = first or {
                n: t.detach().cpu().clone() for n, t in run._context.models[0].named_parameters()
            }
            loss, _ = run.strategy.forward_backward(model, F.cross_entropy, x, y)
            run.step(opt)
            losses[run.global_step] = loss.item()
            if run.global_step == stop_at:
                (Path(directory) / "STOP").write_text("user 0\n")
    except SystemExit:
        (Path(directory) / "STOP").unlink()
    weights = {
        name: tensor.detach().cpu().clone() for name, tensor in run._context.models[0].named_parameters()
    }
    return {"losses": losses, "first": first, "weights": weights}


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_resume_on_a_gpu_is_exact(tmp_path, precision):
    uncut, cut = tmp_path / "uncut", tmp_path / "cut"
    uncut.mkdir()
    cut.mkdir()
    (whole,) = run_ranks(attempt, 1, str(uncut), None, precision)
    (before,) = run_ranks(attempt, 1, str(cut), 3, precision)
    (after,) = run_ranks(attempt, 1, str(cut), None, precision)
    assert before["losses"] and after["losses"] and not before["losses"].keys() & after["losses"].keys()
    assert {**before["losses"], **after["losses"]} == whole["losses"]
    assert largest_difference(after["weights"], whole["weights"]) == 0.0


@pytest.mark.parametrize(("first", "then"), [(GPU, "cpu"), ("cpu", GPU)])
def test_what_one_kind_of_device_saved_the_other_goes_on_from(tmp_path, first, then):
    (before,) = run_ranks(attempt, 1, str(tmp_path), 3, "fp32", first)
    (after,) = run_ranks(attempt, 1, str(tmp_path), None, "fp32", then)
    assert largest_difference(after["first"], before["weights"]) == 0.0
    assert min(after["losses"]) == max(before["losses"]) + 1
