"""A save and its load: the same bits, whatever the training did meanwhile; what stays, and what is refused."""

from __future__ import annotations

import math
import threading

import pytest
import torch

from rankup.errors import RankupError
from rankup.snapshots import disk
from rankup.snapshots.layout import Retention, entries
from rankup.snapshots.saver import Saver
from rankup.snapshots.state import SnapshotState
from snapshot_faults import ALONE, loaded, operations, resumed, saved, state, tensors


def names(root):
    return [entry.name for entry in entries(root)]


def test_what_was_saved_is_found_and_loaded(tmp_path):
    saved(tmp_path / "new" / "snapshots", 1, 2)
    assert resumed(tmp_path / "new" / "snapshots") == 2


def test_an_empty_directory_has_nothing_to_resume_from(tmp_path):
    assert resumed(tmp_path) is None


def test_the_training_may_go_on_while_a_snapshot_is_written(tmp_path):
    may_write, live = threading.Event(), state(3)
    disk.before = lambda what, path: may_write.wait()
    try:
        with Saver(tmp_path, ALONE) as saver:
            saver.save(3, live)
            live.tensors["model"]["weight"].add_(100)
            live.tensors["optimizer"]["param_groups"][0]["lr"] = 100
            live.rank_state["rng"].zero_()
            live.metadata["metrics"]["loss"] = 100
            may_write.set()
    finally:
        disk.before = None
    assert resumed(tmp_path) == 3


def test_buffers_are_reused_and_a_second_save_does_not_disturb_the_first(tmp_path):
    with Saver(tmp_path, ALONE, keep=Retention(last=5)) as saver:
        for step in range(1, 4):
            saver.save(step, state(step))
        places = [buffer.data_ptr() for buffer in saver._staging._buffers.values()]
        saver.save(4, state(4))
        assert [buffer.data_ptr() for buffer in saver._staging._buffers.values()] == places
    for entry in entries(tmp_path)[::-1]:
        assert resumed(tmp_path) == entry.step
        disk.remove(entry.path)


def test_a_synchronous_save_is_durable_when_it_returns(tmp_path):
    with Saver(tmp_path, ALONE, asynchronous=False) as saver:
        saver.save(1, state(1))
        assert names(tmp_path) == ["step-1"]
        assert saver.seconds is not None and saver.seconds > 0


DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.int64,
    torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


def test_every_dtype_shape_and_layout_comes_back_bit_for_bit(tmp_path):
    torch.manual_seed(1)
    odd = {str(dtype): (torch.randn(7, 3) * 5).to(dtype) for dtype in DTYPES}
    odd |= {
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 4),
        "transposed": torch.randn(4, 6).t(),
        "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "a part": torch.randn(10, 10)[2:5, 1:8],
        "not a number": torch.tensor([math.nan, math.inf, -0.0]),
        "parameter": torch.nn.Parameter(torch.randn(3)),
    }
    into = {name: torch.zeros_like(tensor) for name, tensor in odd.items()}
    with Saver(tmp_path, ALONE) as saver:
        saver.save(1, SnapshotState(odd))
        found = saver.newest()
        assert found is not None
        found.load_tensors(into)
    for name, tensor in odd.items():
        assert into[name].stride() == torch.zeros_like(tensor).stride()
        as_bytes = [t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (into[name], tensor)]
        assert torch.equal(*as_bytes), name


def test_the_same_step_saved_again_is_the_newer_one_and_takes_no_other_steps_place(tmp_path):
    with Saver(tmp_path, ALONE) as saver:
        saver.save(4, SnapshotState({"x": torch.zeros(1)}))
        saver.save(5, SnapshotState({"x": torch.zeros(1)}))
        saver.save(5, SnapshotState({"x": torch.ones(1)}))
        found = saver.newest()
        assert found is not None and found.path.name == "step-5-2"
        into = {"x": torch.zeros(1)}
        found.load_tensors(into)
        assert into["x"] == 1
    assert names(tmp_path) == ["step-4", "step-5-2"]


def test_latest_points_to_the_last_one(tmp_path):
    saved(tmp_path, 1, 2)
    assert (tmp_path / "latest").resolve() == (tmp_path / "step-2").resolve()


def test_steps_are_ordered_as_numbers(tmp_path):
    saved(tmp_path, 9, 10, 100, keep=5)
    assert names(tmp_path) == ["step-9", "step-10", "step-100"]


@pytest.mark.parametrize(
    ("keep", "stays"),
    [
        (Retention(last=1), [8]),
        (Retention(last=3), [6, 7, 8]),
        (Retention(last=1, every=3), [3, 6, 8]),
        (Retention(last=1, best=2, metric="loss"), [2, 5, 8]),
        (Retention(last=1, best=2, metric="loss", mode="max"), [1, 7, 8]),
        (Retention(last=1, best=2, metric="unknown"), [8]),
    ],
)
def test_what_is_kept(tmp_path, keep, stays):
    losses = [9, 1, 3, math.nan, 2, 4, 8, 5]
    with Saver(tmp_path, ALONE, keep=keep) as saver:
        for step, loss in enumerate(losses, 1):
            saver.save(step, SnapshotState({"x": torch.tensor(step)}, metadata={"metrics": {"loss": loss}}))
    assert [entry.step for entry in entries(tmp_path)] == stays


def test_a_snapshot_marked_to_be_kept_is_never_deleted_and_takes_no_other_ones_place(tmp_path):
    kept = {"keep": True, "metrics": {"loss": 0.0}}
    with Saver(tmp_path, ALONE, keep=Retention(last=2, best=1, metric="loss")) as saver:
        for step in range(1, 8):
            metadata = kept if step in (2, 6) else {"keep": False, "metrics": {"loss": float(step)}}
            saver.save(step, SnapshotState({"x": torch.tensor(step)}, metadata=metadata))
        assert saver.newest().step == 7
    assert [entry.step for entry in entries(tmp_path)] == [1, 2, 5, 6, 7]


def test_what_cannot_be_read_is_not_deleted(tmp_path):
    saved(tmp_path, 1, 2)
    (tmp_path / "step-1" / "manifest.json").write_text("{")
    saved(tmp_path, 3, 4, 5)
    assert names(tmp_path) == ["step-1", "step-4", "step-5"]


@pytest.mark.parametrize("wrong", [{"last": 0}, {"best": -1}, {"best": 1}, {"mode": "largest"}])
def test_a_rule_that_cannot_be_is_refused(wrong):
    with pytest.raises(RankupError, match="is invalid"):
        Retention(**wrong)


def test_every_file_and_name_is_durable_before_the_next_thing_relies_on_it(tmp_path):
    saved(tmp_path, 1)
    seen = [(what, path.name) for what, path in operations(tmp_path, 2, keep=1)]
    files = [name for what, name in seen if what == "create"]
    assert set(files) == {"tensors-0.bin", "states-0.bin", "values.pt", "manifest.json", "SHA256SUMS"}
    order = [("rename", "step-2.tmp"), ("fsync", tmp_path.name), ("point", "latest"), ("rename", "step-1")]
    published = [seen.index(each) for each in order]
    assert published == sorted(published)
    for name in files:
        assert (
            seen.index(("create", name)) < seen.index(("fsync", name)) < seen.index(("fsync", "step-2.tmp"))
        )
    assert seen.index(("fsync", "step-2.tmp")) < published[0]


class Thing:
    pass


@pytest.mark.parametrize("place", ["tensors", "rank_state"])
def test_what_no_load_would_accept_is_refused_when_it_is_saved(tmp_path, place):
    trees = {"tensors": {"x": torch.zeros(1)}, "rank_state": {}}
    trees[place]["deep"] = {"er": Thing()}
    with Saver(tmp_path, ALONE) as saver:
        with pytest.raises(RankupError, match=r"deep/er is a .*Thing, which a snapshot cannot contain"):
            saver.save(1, SnapshotState(**trees))
        saver.save(2, state(2))
    assert resumed(tmp_path) == 2


def test_two_names_that_would_be_one_are_refused(tmp_path):
    with Saver(tmp_path, ALONE) as saver, pytest.raises(RankupError, match="have the same name 'a/b'"):
        saver.save(1, SnapshotState({"a/b": torch.zeros(1), "a": {"b": torch.ones(1)}}))


def test_kept_things_of_the_usual_kinds_come_back_as_they_were(tmp_path):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    schedules = [
        torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5]),
        torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9),
        torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
    ]
    kept = {str(number): schedule.state_dict() for number, schedule in enumerate(schedules)}
    numpy = pytest.importorskip("numpy")
    with Saver(tmp_path, ALONE) as saver:
        saver.save(1, SnapshotState({}, rank_state={"kept": kept, "number": numpy.float64(0.1)}))
        found = saver.newest()
        assert found is not None
        assert found.rank_state() == {"kept": kept, "number": 0.1}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda into: into["model"].pop("bias"), "model/bias is not in this run"),
        (lambda into: into["model"].update(extra=torch.zeros(1)), "model/extra is not in the snapshot"),
        (lambda into: into["model"].update(bias=torch.zeros(6)), r"bias is float32\[5\] in the snapshot, float32\[6\]"),
        (lambda into: into["model"].update(bias=torch.zeros(5).half()), r"float16\[5\] in this run"),
        (lambda into: into["optimizer"]["param_groups"][0].pop("lr"), "lr is not in this run"),
    ],
)  # fmt: skip
def test_another_model_is_one_error_that_names_what_differs_and_nothing_is_changed(tmp_path, change, said):
    saved(tmp_path, 1)
    into = tensors(0)
    change(into)
    before = repr(into)
    with Saver(tmp_path, ALONE) as saver:
        found = saver.newest()
        assert found is not None
        with pytest.raises(RankupError, match=said) as error:
            found.load_tensors(into)
    assert error.value.code == "other-model"
    assert repr(into) == before


def test_many_differences_are_counted_and_only_the_first_are_named(tmp_path):
    saved(tmp_path, 1)
    with Saver(tmp_path, ALONE) as saver:
        found = saver.newest()
        assert found is not None
        with pytest.raises(RankupError, match="and 5 more"):
            found.load_tensors({"other": torch.zeros(1)})


def test_a_stage_of_a_pipeline_loads_its_part_only(tmp_path):
    saved(tmp_path, 4)
    into = {"model": {"bias": torch.zeros(5)}}
    with Saver(tmp_path, ALONE) as saver:
        found = saver.newest()
        assert found is not None and loaded(found) == 4
        found.load_tensors(into, partial=True)
    assert into["model"]["bias"].tolist() == [2.0] * 5
