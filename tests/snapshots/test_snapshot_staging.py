"""What a save needs beside the state: a rank copies what it writes, and takes checksums of what other ranks write."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from ranks import run_ranks
from rankup.errors import RankupError
from rankup.snapshots import plan
from rankup.snapshots.saver import Saver
from rankup.snapshots.state import SnapshotState
from rankup.snapshots.tensor_checksum import row_sums
from rankup.world import World

TENSORS, SIZE = 16, 4096


def copied(root: Path, differs: bool) -> tuple[int, bool, str | None]:
    """Bytes that this rank has copied for a save; whether the snapshot is whole; the code of its error."""
    plan.SHARE = 1
    dist.init_process_group("gloo")
    world = World.detect()
    state = {f"t{number}": torch.full((SIZE,), float(number)) for number in range(TENSORS)}
    moments = torch.ones(SIZE)
    if differs and world.rank == 1:
        for tensor in (*state.values(), moments):  # among them those that it does not write
            tensor[-1] += 1
    code = None
    with Saver(root, world) as saver:
        try:
            saver.save(1, SnapshotState({**state, "moments": moments}, stable=frozenset([id(moments)])))
            saver.wait()
        except RankupError as error:
            code = error.code
        bytes_ = sum(buffer.nbytes for buffer in saver._staging._buffers.values())
        found = saver.newest()
        into = {**{name: torch.zeros(SIZE) for name in state}, "moments": torch.zeros(SIZE)}
        if found is not None:
            found.load_tensors(into)
        whole = all(torch.equal(into[name], state[name]) for name in state) and into["moments"].sum() == SIZE
    return bytes_, bool(whole), code


def test_a_rank_copies_its_share_of_what_all_ranks_hold(tmp_path):
    for world in (1, 2, 4):
        results = run_ranks(copied, world, tmp_path / str(world), False)
        assert [each[1:] for each in results] == [(True, None)] * world
        for bytes_, *_ in results:
            assert bytes_ <= (TENSORS + 1) * SIZE * 4 / world + SIZE * 4
        assert sum(bytes_ for bytes_, *_ in results) == (TENSORS + 1) * SIZE * 4


def test_what_a_rank_does_not_write_is_compared_all_the_same(tmp_path):
    results = run_ranks(copied, 3, tmp_path, True)
    assert [code for *_, code in results] == ["replicas-differ"] * 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("length", [0, 3, 2046, 5000, 300_001])
def test_row_sums_depend_on_every_bit_and_its_place(dtype, length):
    tensor = (torch.arange(length) % 2).to(dtype)
    sums = row_sums(tensor)
    assert len(sums) < 2 * 1023 + length * tensor.element_size() // 8000 + 8
    for place in {0, length // 2, length - 1} if length else ():
        other = tensor.clone()
        other[place] = 1 - other[place].to(torch.int64)
        assert not torch.equal(row_sums(other), sums)
    if length > 3:
        assert not torch.equal(row_sums(tensor.roll(1)), sums)


@pytest.mark.parametrize("change", [lambda x: x / 2, lambda x: -x, lambda x: x * 4, lambda x: x.flip(0)])
def test_row_sums_notice_the_same_change_of_all_numbers(change):
    tensor = torch.randn(1 << 17, generator=torch.Generator().manual_seed(3))
    assert not torch.equal(row_sums(change(tensor)), row_sums(tensor))
