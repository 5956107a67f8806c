"""Staging from a GPU: into pinned memory, complete before the training goes on."""

from __future__ import annotations

import pytest
import torch

from rankup.snapshots.saver import Saver
from rankup.snapshots.state import State
from snapshot_faults import ALONE


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_copy_from_a_gpu_is_pinned_and_is_of_the_moment_of_the_save(tmp_path):
    live = {str(number): torch.full((1000, 1000), float(number), device="cuda") for number in range(20)}
    with Saver(tmp_path, ALONE) as saver:
        for step in (1, 2):
            saver.save(step, State(live, own={"rng": torch.cuda.get_rng_state()}))
            for tensor in live.values():
                tensor.add_(1)
        assert saver._staging._buffers["0"].is_pinned()
        found = saver.newest()
        assert found is not None and found.step == 2
        into = {name: torch.zeros_like(tensor) for name, tensor in live.items()}
        found.load_tensors(into)
    assert all((into[name] == int(name) + 1).all() for name in live)
