"""Several ranks, and several nodes: each tensor is written once, any sharding is read by any other, all agree."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from ranks import run_ranks
from rankup.errors import RankupError
from rankup.snapshots import plan
from rankup.snapshots.layout import damaged, entries
from rankup.snapshots.manifest import read_manifest
from rankup.snapshots.saver import Saver
from rankup.snapshots.state import SnapshotState
from rankup.world import World
from snapshot_faults import ALONE, flip, resumed, saved, state, tensors


def join() -> World:
    plan.SHARE = 1  # every rank writes, however little there is
    dist.init_process_group("gloo")
    return World.detect()


def refusal(action) -> str:
    """The code of the error that ``action`` ends with."""
    try:
        action()
    except RankupError as error:
        return error.code
    return "none"


def replicas(root: Path) -> tuple:
    world = join()
    with Saver(root, world) as saver:
        for step in (1, 2):
            saver.save(step, SnapshotState(tensors(step), {"rank": world.rank}, {"step": step}))
        found = saver.newest()
        assert found is not None
        into = tensors(0)
        found.load_tensors(into)
        return repr(into), found.rank_state()


def test_replicas_write_every_tensor_once_and_share_the_work(tmp_path):
    answers = run_ranks(replicas, 2, tmp_path)
    assert [into for into, _ in answers] == [repr(tensors(2))] * 2
    assert [own for _, own in answers] == [{"rank": 0}, {"rank": 1}]
    manifest = read_manifest(tmp_path / "step-2")
    assert {len(tensor.chunks) for tensor in manifest.tensors.values()} == {1}
    assert {c.file for tensor in manifest.tensors.values() for c in tensor.chunks} == {
        "tensors-0.bin", "tensors-1.bin",
    }  # fmt: skip
    with Saver(tmp_path, ALONE) as saver:
        found = saver.newest()
        assert found is not None and found.world_size == 2
        assert found.rank_state() is None
        into = tensors(0)
        found.load_tensors(into)
        assert repr(into) == repr(tensors(2))


WHOLE = {
    "rows": torch.arange(35.0).view(5, 7),  # 3 and 2 rows on two ranks
    "columns": torch.arange(35).view(5, 7),
    "copies": torch.arange(4.0).bfloat16(),
    "one row": torch.ones(1, 3),  # nothing on the second rank
    "plain": torch.arange(3.0),
}
LAYOUTS = {"rows": Shard(0), "columns": Shard(1), "copies": Replicate(), "one row": Shard(0)}
OTHERS = {"rows": Shard(1), "columns": Shard(0), "copies": Shard(0), "one row": Shard(1), "plain": Shard(0)}


def spread(layouts: dict, filled: bool) -> dict:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    live = {name: tensor.clone() if filled else torch.zeros_like(tensor) for name, tensor in WHOLE.items()}
    return {n: distribute_tensor(t, mesh, [layouts[n]]) if n in layouts else t for n, t in live.items()}


def whole(live: dict) -> dict:
    return {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in live.items()}


def save_shards(root: Path) -> None:
    world = join()
    with Saver(root, world) as saver:
        saver.save(1, SnapshotState(spread(LAYOUTS, filled=True)))


def load_shards(root: Path) -> list[bool]:
    world = join()
    same = []
    for layouts in (LAYOUTS, OTHERS, {}):
        into = spread(layouts, filled=False)
        with Saver(root, world) as saver:
            found = saver.newest()
            assert found is not None
            found.load_tensors(into)
        same += [torch.equal(tensor, WHOLE[name]) for name, tensor in whole(into).items()]
    return same


def test_shards_are_read_into_any_other_sharding_and_into_whole_tensors(tmp_path):
    run_ranks(save_shards, 2, tmp_path)
    manifest = read_manifest(tmp_path / "step-1")
    assert [chunk.sizes for chunk in manifest.tensors["rows"].chunks] == [(3, 7), (2, 7)]
    assert len(manifest.tensors["copies"].chunks) == 1
    for world_size in (2, 3):
        for same in run_ranks(load_shards, world_size, tmp_path):
            assert same == [True] * 15
    into = {name: torch.zeros_like(tensor) for name, tensor in WHOLE.items()}
    with Saver(tmp_path, ALONE) as saver:
        found = saver.newest()
        assert found is not None
        found.load_tensors(into)
    assert all(torch.equal(into[name], WHOLE[name]) for name in WHOLE)


def test_what_one_process_saved_is_read_by_shards(tmp_path):
    with Saver(tmp_path, ALONE) as saver:
        saver.save(1, SnapshotState(dict(WHOLE)))
    for same in run_ranks(load_shards, 2, tmp_path):
        assert same == [True] * 15


def disagree(root: Path) -> list[str]:
    world = join()
    odd = world.rank == 1
    codes = []
    with Saver(root, world) as saver:
        for wrong in (
            SnapshotState({"x": torch.zeros(2 + odd)}),
            SnapshotState({"x": torch.zeros(2, dtype=torch.int32 if odd else torch.int64)}),
            SnapshotState({"x": torch.zeros(2), "lr": 0.1 + odd}),
        ):
            saver.save(1, wrong)
            codes.append(refusal(saver.wait))
        mesh = init_device_mesh("cpu", (2,))
        part = distribute_tensor(torch.zeros(4), mesh, [Shard(0)])
        saver.save(1, SnapshotState({"x": torch.zeros(4) if odd else part}))
        codes.append(refusal(saver.wait))
        saver.save(2, SnapshotState({"x": torch.zeros(2), "lr": float("nan")}))
    return codes


def test_ranks_that_disagree_are_one_error_on_all_and_the_next_save_succeeds(tmp_path):
    for codes in run_ranks(disagree, 2, tmp_path):
        assert codes == ["ranks-differ", "ranks-differ", "ranks-differ", "incomplete-state"]
    assert [entry.step for entry in entries(tmp_path)] == [2]
    assert not list(tmp_path.glob("*.tmp"))


def fail_on_the_second(root: Path) -> tuple:
    from rankup.snapshots import disk
    from snapshot_faults import FULL, At

    world = join()
    saver = Saver(root, world)
    if world.rank == 1:
        disk.before = At(1, FULL)
    saver.save(2, state(2))
    first = refusal(saver.wait)
    disk.before = None
    flip(root / "step-1" / "tensors-0.bin", 9) if world.rank == 0 else None
    dist.barrier()
    damage = refusal(saver.newest)
    saver.save(3, state(3))
    found = saver.newest()
    return first, damage, found and found.step


def test_an_error_of_one_rank_is_raised_on_all(tmp_path):
    saved(tmp_path, 1)
    answers = run_ranks(fail_on_the_second, 2, tmp_path)
    assert answers == [("no-space", "no-good-snapshot", 3)] * 2


def one_node_each(roots: list[Path], swapped: bool = False) -> tuple:
    rank = join().rank
    world = World(rank, 0, 2, 1, node_rank=rank, num_nodes=2)
    with Saver(roots[rank], world) as saver:
        if swapped:
            return (refusal(saver.newest),)
        for step in (1, 2):
            saver.save(step, SnapshotState(spread(LAYOUTS, filled=True), {"rank": rank}, {"step": step}))
        saver.wait()
        if rank == 1:
            flip(roots[1] / "step-2" / "states-1.bin", 100)
        dist.barrier()
        found = saver.newest()
        assert found is not None
        into = spread(LAYOUTS, filled=False)
        found.load_tensors(into)
        same = all(torch.equal(tensor, WHOLE[name]) for name, tensor in whole(into).items())
        saver.save(2, SnapshotState(spread(LAYOUTS, filled=True)))
        return saver.shared, found.step, found.rank_state(), same


def test_nodes_with_directories_of_their_own_agree_on_the_newest_that_is_whole_on_all(tmp_path):
    roots = [tmp_path / "node0", tmp_path / "node1"]
    answers = run_ranks(one_node_each, 2, roots)
    assert answers == [(False, 1, {"rank": rank}, True) for rank in (0, 1)]
    for root in roots:
        assert [entry.name for entry in entries(root)] == ["step-1", "step-2"]
        assert [path.name for path in damaged(root)] == ["step-2.damaged"]
    assert set(read_manifest(roots[1] / "step-1").states) == {1}
    assert run_ranks(one_node_each, 2, roots[::-1], True) == [("scattered-snapshot",)] * 2
    with pytest.raises(RankupError, match="each to its own directory"), Saver(roots[0], ALONE) as saver:
        saver.newest()


def probe(roots: list[Path]) -> object:
    rank = join().rank
    world = World(rank, 0, len(roots), 1, node_rank=rank, num_nodes=len(roots))
    try:
        with Saver(roots[rank], world) as saver:
            return saver.shared
    except RankupError as error:
        return error.code


def test_whether_nodes_share_a_directory_is_found_out(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    assert run_ranks(probe, 2, [one, one]) == [True, True]
    assert run_ranks(probe, 3, [one, one, other]) == ["partly-shared"] * 3
    assert run_ranks(probe, 3, [other, one, one]) == ["partly-shared"] * 3  # which the first node cannot see
    assert run_ranks(probe, 2, [other, one]) == [False, False]
    assert [path.name for path in (*one.iterdir(), *other.iterdir())] == [".lock"] * 2


def test_a_complete_snapshot_of_one_node_serves_another_number_of_processes(tmp_path):
    roots = [tmp_path / "node0", tmp_path / "node1"]
    run_ranks(save_copies, 2, roots)
    assert resumed_tensors(roots[1]) == repr(tensors(4))


def save_copies(roots: list[Path]) -> None:
    rank = join().rank
    with Saver(roots[rank], World(rank, 0, 2, 1, node_rank=rank, num_nodes=2)) as saver:
        saver.save(4, state(4))


def resumed_tensors(root: Path) -> str:
    with Saver(root, ALONE) as saver:
        found = saver.newest()
        assert found is not None and found.rank_state() is None
        into = tensors(0)
        found.load_tensors(into)
        return repr(into)


def die_while_saving(root: Path) -> str:
    from snapshot_faults import At, save_with

    rank = int(World.detect().rank)
    try:
        save_with(root, 2, 2, At(2 if rank == 1 else -1))
    except Exception as error:
        return type(error).__name__
    return "saved"


def test_a_rank_that_dies_while_saving_leaves_the_earlier_snapshot(tmp_path):
    saved(tmp_path, 1)
    with pytest.raises(AssertionError, match="rank 1: ended without a word"):
        run_ranks(die_while_saving, 2, tmp_path)
    assert resumed(tmp_path) == 1
