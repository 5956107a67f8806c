"""What ranks tell each other for a save: few messages, and no more bytes for more tensors or, but on rank 0, ranks."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from ranks import run_ranks
from rankup.errors import RankupError
from rankup.messages.tree import Tree
from rankup.snapshots import plan, writing
from rankup.snapshots.manifest import read_manifest
from rankup.snapshots.peers import Peers
from rankup.snapshots.saver import Saver
from rankup.snapshots.state import SnapshotState
from rankup.world import World

NODE = 2  # ranks


@contextmanager
def counted():
    """Counts exchanges, and the messages and bytes that this rank sends or receives for them."""
    calls: Counter[str] = Counter()
    begin, send, read = Tree.begin, Tree.send, Tree.read

    def count_begin(tree, *args):
        calls["exchanges"] += 1
        return begin(tree, *args)

    def count_send(tree, rank, content):
        calls.update(sent=1, bytes=len(content))
        return send(tree, rank, content)

    def count_read(tree, incoming):
        content = read(tree, incoming)
        calls.update(received=1, bytes=len(content))
        return content

    with pytest.MonkeyPatch.context() as patched:
        for name, count in (("begin", count_begin), ("send", count_send), ("read", count_read)):
            patched.setattr(Tree, name, count)
        yield calls


def tensors(count: int, kind: str) -> dict:
    whole = {f"layer{number}": torch.full((8, 4), float(number)) for number in range(count)}
    if kind == "sharded":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        return {name: distribute_tensor(tensor, mesh, [Shard(0)]) for name, tensor in whole.items()}
    return whole


def messages(root: Path, count: int, kind: str) -> list[dict[str, int]]:
    """Of two saves of one layout, what this rank sent and received. The second one needs no plan."""
    plan.SHARE = 1
    dist.init_process_group("gloo")
    world = World.detect()
    node = World(
        world.rank, world.rank % NODE, world.world_size, NODE, world.rank // NODE, world.world_size // NODE
    )
    live, found = tensors(count, kind), []
    with Saver(root, node) as saver:
        for step in (1, 2):
            with counted() as calls:
                saver.save(step, SnapshotState({"model": live, "lr": 0.1}, {"rank": world.rank}))
                saver.wait()
            found.append(dict(calls))
    return found


@pytest.mark.parametrize("kind", ["replicated", "sharded"])
def test_a_save_by_a_plan_costs_the_same_few_messages_for_any_number_of_tensors(tmp_path, kind):
    few, many = (run_ranks(messages, 4, tmp_path / str(count), count, kind) for count in (4, 100))
    for (_, one), (_, other) in zip(few, many, strict=True):
        sizes = one.pop("bytes"), other.pop("bytes")
        assert one == other
        # Only the digits of the sizes of files differ, and of the 64 sums.
        assert abs(sizes[0] - sizes[1]) < 64 * (one["sent"] + one["received"])


def test_more_ranks_cost_a_rank_no_more_except_the_first_which_hears_once_from_each(tmp_path):
    by_world = {
        w: [two for _, two in run_ranks(messages, w, tmp_path / str(w), 20, "replicated")] for w in (2, 4, 8)
    }
    for size, (first, *others) in by_world.items():
        for calls in others:
            # Each with its parent; one of them with the first rank of its node, or a first one with the second.
            assert calls["exchanges"] == calls["sent"] == calls["received"] == 5 + 1
        assert first["received"] == first["sent"] == 5 * (size - 1) + 1
    # A second rank of a node: its state to the first one of the node, and its files to the first one of all.
    assert max(ranks[1]["bytes"] for ranks in by_world.values()) - by_world[2][1]["bytes"] < 64


def reused(root: Path) -> list[bool]:
    dist.init_process_group("gloo")
    world, found = World.detect(), []
    live = {"a": torch.zeros(4)}
    with Saver(root, world) as saver:
        for step in range(1, 5):
            if step == 3 and world.rank == 1:  # one rank's layout changes, as a lazily made state does
                live["b"] = torch.ones(4)
            with counted() as calls:
                saver.save(step, SnapshotState(dict(live)))
                saver.wait()
            found.append(calls["exchanges"] > 6)
    return found


def test_a_plan_is_made_again_on_all_ranks_only_if_the_layout_of_one_has_changed(tmp_path):
    assert run_ranks(reused, 2, tmp_path) == [[True, False, True, False]] * 2
    manifest = read_manifest(tmp_path / "step-4")
    assert set(manifest.tensors) == {"a", "b"} and manifest.complete


def packed(root: Path) -> object:
    writing.LARGE = 10_000
    dist.init_process_group("gloo")
    world = World.detect()
    node = World(world.rank, world.rank % NODE, 4, NODE, world.rank // NODE, 2)
    own = (
        {"rank": world.rank, "large": torch.full((5_000,), 1.0 * world.rank)}
        if world.rank == 3
        else {"rank": world.rank}
    )
    with Saver(root, node) as saver:
        saver.save(1, SnapshotState({"x": torch.zeros(2)}, own))
        found = saver.newest()
        assert found is not None
        state = found.rank_state()
        return state and repr(state) == repr(own)


def test_the_states_of_a_nodes_ranks_are_one_file_except_large_ones(tmp_path):
    assert run_ranks(packed, 4, tmp_path) == [True] * 4
    manifest = read_manifest(tmp_path / "step-1")
    assert {rank: saved.file for rank, saved in manifest.states.items()} == {
        0: "states-0.bin", 1: "states-0.bin", 2: "states-1.bin", 3: "state-3.pt",
    }  # fmt: skip
    # Few bytes are written by one rank.
    assert set(manifest.files) == {"tensors-0.bin", "states-0.bin", "states-1.bin", "state-3.pt", "values.pt"}


def adopted(root: Path) -> list[int]:
    dist.init_process_group("gloo")
    with Saver(root, World.detect()) as saver:
        found = saver.newest()
        assert found is not None and found.rank_state() is None
        assert found.first_rank_state()["rank"] == 0
        return [state["rank"] for state in found.adopted_rank_states()]


def test_another_number_of_ranks_divides_the_states_and_each_goes_to_one(tmp_path):
    run_ranks(packed, 4, tmp_path)
    assert run_ranks(adopted, 3, tmp_path) == [[0, 3], [1], [2]]
    assert run_ranks(adopted, 2, tmp_path) == [[0, 2], [1, 3]]


def hybrid(root: Path) -> str:
    """Shards over two ranks, two copies of each: every copy is written once, and one that differs is found."""
    plan.SHARE = 1
    dist.init_process_group("gloo")
    world = World.detect()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards"))
    live = {
        name: distribute_tensor(torch.arange(12.0).view(6, 2) + number, mesh["shards"], [Shard(0)])
        for number, name in enumerate(("a", "b"))
    }
    both = {name: DTensor.from_local(t.to_local(), mesh, [Replicate(), Shard(0)]) for name, t in live.items()}
    with Saver(root, world) as saver:
        saver.save(1, SnapshotState(both))
        saver.wait()
        if world.rank == 3:
            both["b"].to_local()[0, 0] += 1
        saver.save(2, SnapshotState(both))
        try:
            saver.wait()
        except RankupError as error:
            return error.message
    return ""


def test_copies_of_shards_are_written_once_and_compared(tmp_path):
    said = run_ranks(hybrid, 4, tmp_path)
    manifest = read_manifest(tmp_path / "step-1")
    assert [[chunk.sizes for chunk in saved.chunks] for saved in manifest.tensors.values()] == [
        [(3, 2)] * 2
    ] * 2
    assert sum(manifest.files[name] for name in manifest.files if name.startswith("tensors")) < 4 * 64 + 1
    assert all("b differs between rank 1 and rank 3" in each for each in said), said
    assert not (tmp_path / "step-2").exists()


def stages(root: Path) -> object:
    """As a pipeline: ranks 0 and 1 hold one part of the names, 2 and 3 the other, and all hold one more."""
    plan.SHARE = 1
    dist.init_process_group("gloo")
    world = World.detect()
    stage, codes = world.rank // 2, []
    with Saver(root, world) as saver:
        for wrong in ("", "own", "common", "value"):
            shift = 1.0 if world.rank == 3 else 0.0
            mine = {
                f"stage{stage}": torch.ones(4) + (shift if wrong == "own" else 0),
                "common": torch.zeros(3) + (shift if wrong == "common" else 0),
                f"lr{stage}": 0.1 + (shift if wrong == "value" else 0),
            }
            saver.save(1, SnapshotState(mine))
            try:
                saver.wait()
                codes.append("")
            except RankupError as error:
                codes.append(error.message.partition(": the snapshot")[0].partition(" is ")[0])
        found = saver.newest()
        assert found is not None
        into = {f"stage{stage}": torch.zeros(4), "common": torch.ones(3), f"lr{stage}": 0.0}
        found.load_tensors(into, partial=True)
        assert into[f"stage{stage}"].sum() == 4 and into["common"].sum() == 0 and into[f"lr{stage}"] == 0.1
    return codes


def test_ranks_of_different_stages_write_their_names_and_compare_what_they_share(tmp_path):
    said = ["", "stage1 differs between rank 2 and rank 3", "common differs between rank 0 and rank 3", "lr1"]
    assert run_ranks(stages, 4, tmp_path) == [said] * 4
    manifest = read_manifest(tmp_path / "step-1")
    assert {name: len(saved.chunks) for name, saved in manifest.tensors.items()} == {
        "common": 1,
        "stage0": 1,
        "stage1": 1,
    }


def test_ten_thousand_ranks_write_what_they_share_to_few_files_on_many_nodes():
    sizes = {f"layer{number}": (1 + number % 3) << 20 for number in range(1_000)}
    writers = plan.divide(sizes, range(10_000))
    loads: Counter[int] = Counter()
    for name, rank in writers.items():
        loads[rank] += sizes[name]
    assert writers.keys() == sizes.keys()
    assert len(loads) == sum(sizes.values()) // plan.SHARE == 124
    assert max(loads.values()) < 1.2 * plan.SHARE
    assert len({rank // 8 for rank in loads}) == len(loads)  # each on a node of its own
    assert set(plan.divide(dict.fromkeys("abc", 100), range(10_000)).values()) == {0}


class Ranks(tuple):
    """A long list of ranks: its hash takes as long as it is."""

    hashed = 0

    def __hash__(self) -> int:
        Ranks.hashed += 1
        return super().__hash__()


def test_the_ranks_that_hold_the_same_are_looked_at_once_and_not_once_per_tensor():
    part, ranks = plan.Part("float32", (8, 4), (0, 0), (8, 4)), Ranks((0,))
    names = [f"layer{number}" for number in range(100)]
    layout = plan.Layout(dict.fromkeys(names, part), dict.fromkeys(names, ranks), frozenset())
    made = plan.make_plan(layout, Peers(World()), shared=True)
    assert sorted(made.chunks) == sorted(names)
    assert Ranks.hashed < 10
