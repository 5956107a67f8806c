"""``rankup snapshots`` as a user meets it."""

from __future__ import annotations

import json
import struct
import subprocess
import sys

import pytest
import torch

from commands import calling
from rankup.snapshots.layout import entries
from rankup.snapshots.saver import Saver
from rankup.snapshots.state import SnapshotState
from snapshot_faults import ALONE, flip, resumed, saved, tensors


@pytest.fixture
def run(tmp_path):
    """A run directory with steps 1 and 2."""
    saved(tmp_path / "run" / "snapshots", 1, 2)
    return tmp_path / "run"


call = calling("snapshots")


def test_ls_tells_what_there_is_of_a_run_and_of_a_directory(run, capsys):
    for place in (run, run / "snapshots"):
        code, out, _ = call(capsys, "list", place)
        head, first, second = out.splitlines()
        assert code == 0
        assert head.split() == ["snapshot", "age", "size", "world", "strategy", "metrics"]
        assert first.startswith("step-1 ") and "loss 0.5" in first
        assert second.startswith("step-2 ") and "loss 0.3333" in second


def test_ls_shows_what_was_set_aside_and_what_cannot_be_read(run, capsys):
    flip(run / "snapshots" / "step-2" / "values.pt", 99)
    resumed(run / "snapshots")
    (run / "snapshots" / "step-7").mkdir()
    rows = json.loads(call(capsys, "list", run, "--json")[1])
    assert [(row["snapshot"], row["state"]) for row in rows] == [
        ("step-1", "unverified"), ("step-7", "damaged"), ("step-2.damaged", "damaged"),
    ]  # fmt: skip
    assert rows[0]["step"] == 1 and rows[0]["world_size"] == 1 and rows[0]["bytes"] > 0
    lines = call(capsys, "list", run)[1].splitlines()
    assert [line.split()[-1] == "damaged" for line in lines[1:]] == [False, True, True]


def test_ls_shows_which_are_kept_as_ends_of_loops_in_each_stage_and_what_they_take(tmp_path, capsys):
    marks = {"within": True, "loop": {"unit": "epochs", "goal": 3}}
    for folder in ("snapshots", "snapshots/stage-2"):
        with Saver(tmp_path / folder, ALONE) as saver:
            for step, more in (
                (1, {}),
                (2, {"keep": True, "done": True}),
                (3, {"within": False, "keep": True}),
            ):
                metadata = {"step": step, "metrics": {}, **marks, **more}
                saver.save(step, SnapshotState(tensors(step), {}, metadata))
    _, *lines, last = call(capsys, "list", tmp_path)[1].splitlines()
    ends = ("", "kept: before the last step of 3 epochs", "kept: the end of 3 epochs")
    names = [f"{stage}step-{step}" for stage in ("", "stage-2/") for step in (1, 2, 3)]
    assert [line.split()[0] for line in lines] == names
    assert all(line.rstrip().endswith(end) for line, end in zip(lines, ends * 2, strict=True))
    assert "kept" not in lines[0] and last.startswith("kept as ends of loops") and " 4, " in last
    rows = json.loads(call(capsys, "list", tmp_path, "--json")[1])
    assert [(row["within"], row["kept"]) for row in rows[:3]] == [(True, False), (True, True), (False, True)]
    assert rows[0]["loop"] == {"unit": "epochs", "goal": 3}


def test_a_run_without_snapshots_is_no_error_and_no_directory_is(tmp_path, capsys):
    assert call(capsys, "list", tmp_path)[:2] == (0, f"no snapshots in {tmp_path}\n")
    code, _, err = call(capsys, "list", tmp_path / "nothing")
    assert code == 2 and "[no-such-directory]" in err


def test_verify_says_which_are_good_and_changes_nothing(run, capsys):
    assert call(capsys, "verify", run)[:2] == (0, "step-1          good\nstep-2          good\n")
    flip(run / "snapshots" / "step-1" / "tensors-0.bin", 99)
    code, out, _ = call(capsys, "verify", run, "--json")
    assert code == 1
    assert [(row["snapshot"], row["good"]) for row in json.loads(out)] == [
        ("step-1", False),
        ("step-2", True),
    ]
    assert "step-1          damaged: the SHA-256 of tensors-0.bin" in call(capsys, "verify", run)[1]
    assert [entry.name for entry in entries(run / "snapshots")] == ["step-1", "step-2"]


def test_verify_of_one_snapshot_looks_at_that_one_alone(run, capsys):
    flip(run / "snapshots" / "step-1" / "tensors-0.bin", 99)
    assert call(capsys, "verify", run / "snapshots" / "step-2")[:2] == (0, "step-2          good\n")
    assert call(capsys, "verify", run / "snapshots" / "latest")[0] == 0


@pytest.mark.slow
def test_ls_and_verify_work_where_there_is_no_torch(run):
    for command in ("list", "verify"):
        code = (
            "import sys; sys.modules['torch'] = None\n"
            f"from rankup.cli.app import main; main(['snapshots', {command!r}, {str(run)!r}])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "step-2" in done.stdout


def test_diff_names_what_differs_and_by_how_much(run, capsys):
    first, second = run / "snapshots" / "step-1", run / "snapshots" / "step-2"
    assert call(capsys, "diff", first, first)[:2] == (0, f"step 1: {first}\n" * 2 + "no differences\n")
    code, out, _ = call(capsys, "diff", first, run)
    one, other, *lines = out.splitlines()
    assert code == 1
    assert (one, other) == (f"step 1: {first}", f"step 2: {second}")
    assert lines[0] == "5 differ, the first is model/weight; the largest difference is 1"
    assert lines[2] == "  model/bias: 0.5"
    assert lines[-1] == "  optimizer/param_groups/0/lr: 0.1 | 0.2"
    rows = json.loads(call(capsys, "diff", first, second, "--json")[1])
    assert {row["name"]: row["largest"] for row in rows}["model/weight"] == 1.0


def test_diff_says_once_what_is_the_same_of_many_parameters(tmp_path, capsys):
    sides = tmp_path / "one", tmp_path / "two"
    for step, folder in enumerate(sides, start=1):
        groups = {name: {"lr": 0.5 * step, "decay": 0.5 * step} for name in "abc"}
        with Saver(folder, ALONE) as saver:
            saver.save(step, SnapshotState({"groups": groups}))
    *_, first, one, other = call(capsys, "diff", *sides)[1].splitlines()
    assert first == "6 differ, the first is groups/a/decay"
    assert (one, other) == ("  groups/a/decay and 2 more: 0.5 | 1.0", "  groups/a/lr and 2 more: 0.5 | 1.0")
    assert len(json.loads(call(capsys, "diff", *sides, "--json")[1])) == 6


def test_diff_compares_what_the_script_has_registered(tmp_path, capsys):
    for name, decay in (("slow", 0.5), ("fast", 0.25)):
        with Saver(tmp_path / name, ALONE) as saver:
            registered = {
                "ema": {"weight": torch.full((2,), decay), "shadows": [torch.zeros(3)]},
                "best": {"value": decay},
                "run.meter": {"sums": decay},  # rankup's own
            }
            saver.save(1, SnapshotState(tensors(1), {"registered": registered}))
    assert call(capsys, "diff", tmp_path / "slow", tmp_path / "slow")[0] == 0
    code, out, _ = call(capsys, "diff", tmp_path / "slow", tmp_path / "fast")
    assert code == 1
    assert out.splitlines()[3:] == [
        "  registered/ema/weight: 0.25",
        "  registered/best/value: 0.5 | 0.25",
    ]


@pytest.mark.parametrize(
    ("left", "right", "largest"),
    [
        ([1.0, float("nan")], [1.0, float("nan")], None),
        ([1.0, float("nan")], [1.0, 2.0], float("inf")),
        ([float("inf"), 1.0], [float("inf"), 3.0], 2.0),
        ([0.0], [-0.0], None),
    ],
)
def test_diff_of_numbers_that_are_none(tmp_path, capsys, left, right, largest):
    with Saver(tmp_path, ALONE) as saver:
        saver.save(1, SnapshotState({"x": torch.tensor(left)}))
        saver.save(2, SnapshotState({"x": torch.tensor(right)}))
    code, out, _ = call(capsys, "diff", tmp_path / "step-1", tmp_path / "step-2", "--json")
    assert code == (0 if largest is None else 1)
    assert [row["largest"] for row in json.loads(out)] == ([] if largest is None else [largest])


def test_diff_of_other_shapes_and_other_names(tmp_path, capsys):
    with Saver(tmp_path, ALONE) as saver:
        saver.save(1, SnapshotState({"x": torch.zeros(2), "y": torch.zeros(1)}))
        saver.save(2, SnapshotState({"x": torch.zeros(3), "z": torch.zeros(1)}))
    out = call(capsys, "diff", tmp_path / "step-1", tmp_path / "step-2")[1]
    assert "  x: float32[2] | float32[3]" in out
    assert "  y: float32[1] | nothing" in out and "  z: nothing | float32[1]" in out


def read_safetensors(path):
    """Name → tensor, by the format's description."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    header.pop("__metadata__")
    dtypes = {"F32": torch.float32, "I64": torch.int64, "BF16": torch.bfloat16}
    return {
        name: torch.frombuffer(
            bytearray(data[slice(*said["data_offsets"])]), dtype=dtypes[said["dtype"]]
        ).view(said["shape"])
        for name, said in header.items()
    }


def test_export_gives_the_plain_model_of_the_newest(run, capsys, tmp_path):
    out = tmp_path / "model.safetensors"
    code, said, _ = call(capsys, "export", run, out)
    assert (code, said) == (0, f"{out}: 2 tensors of step 2\n")
    expected = tensors(2)["model"]
    exported = read_safetensors(out)
    assert exported.keys() == expected.keys()
    assert all(torch.equal(exported[name], expected[name]) for name in expected)
    torch.nn.Linear(3, 5, bias=True).load_state_dict(
        {"weight": exported["weight"].t(), "bias": exported["bias"]}
    )


def test_an_export_is_read_by_safetensors_itself(tmp_path, capsys):
    library = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    model = {
        "a": torch.arange(3, dtype=torch.bfloat16),
        "b": torch.arange(6).view(2, 3),
        "c": torch.tensor(True),
    }
    with Saver(tmp_path, ALONE) as saver:
        saver.save(1, SnapshotState({"model": model}))
    call(capsys, "export", tmp_path, tmp_path / "x.safetensors")
    exported = library.load_file(tmp_path / "x.safetensors")
    assert all(torch.equal(exported[name], model[name]) for name in model)


def test_an_export_of_another_name_is_read_by_torch(run, capsys, tmp_path):
    assert call(capsys, "export", run, tmp_path / "model.pt")[0] == 0
    exported, expected = torch.load(tmp_path / "model.pt"), tensors(2)["model"]
    assert exported.keys() == expected.keys()
    assert all(torch.equal(exported[name], expected[name]) for name in expected)


@pytest.mark.parametrize("name", ["x.pt", "x.safetensors"])
def test_an_export_has_the_order_of_the_models_own_state_dict(tmp_path, capsys, name: str):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LayerNorm(2), torch.nn.Linear(2, 2))
    with Saver(tmp_path, ALONE) as saver:
        saver.save(1, SnapshotState({"0": {"model": dict(model.state_dict())}}))
    call(capsys, "export", tmp_path, tmp_path / name)
    read = torch.load if name.endswith(".pt") else read_safetensors
    assert list(read(tmp_path / name)) == list(model.state_dict()) != sorted(model.state_dict())


def test_export_says_what_parts_there_are(run, capsys, tmp_path):
    code, _, err = call(capsys, "export", run, tmp_path / "x", "--part", "teacher")
    assert code == 2 and "has no part named teacher" in err and "model, optimizer" in err
    assert call(capsys, "export", run, tmp_path / "x", "--part", "optimizer/state")[0] == 0


def test_export_finds_the_one_model_of_a_run_and_asks_which_of_several(tmp_path, capsys):
    """A run names its parts 0/model, 0/optimizer, 1/model, …"""
    model = {"model": {"w": torch.ones(2)}, "optimizer": {"state": {"w": {"m": torch.zeros(2)}}}}
    with Saver(tmp_path, ALONE) as saver:
        saver.save(1, SnapshotState({"0": model}))
    assert call(capsys, "export", tmp_path, tmp_path / "one.safetensors")[0] == 0
    assert read_safetensors(tmp_path / "one.safetensors").keys() == {"w"}
    with Saver(tmp_path, ALONE) as saver:
        saver.save(2, SnapshotState({"0": model, "1": model}))
    code, _, err = call(capsys, "export", tmp_path, tmp_path / "two.safetensors")
    assert code == 2 and "[several-parts]" in err and "0/model, 1/model" in err
    assert call(capsys, "export", tmp_path, tmp_path / "two.safetensors", "--part", "1/model")[0] == 0


@pytest.mark.parametrize("name", ["ema.pt", "ema.safetensors"])
def test_a_registered_average_is_a_part_under_its_name(tmp_path, capsys, name: str):
    average = {"w": torch.arange(3.0), "count": torch.tensor(7)}
    rank_state = {"registered": {"ema": {**average, "extra": "text"}, "best": {"value": 0.5}, "plain": 3}}
    with Saver(tmp_path, ALONE) as saver:
        saver.save(1, SnapshotState({"0": {"model": {"w": torch.ones(2)}}}, rank_state))
    code, said, _ = call(capsys, "export", tmp_path, tmp_path / name, "--part", "ema")
    assert (code, said) == (0, f"{tmp_path / name}: 2 tensors of step 1\n")
    read = torch.load if name.endswith(".pt") else read_safetensors
    exported = read(tmp_path / name)
    assert exported.keys() == average.keys()
    assert all(torch.equal(exported[key], average[key]) for key in average)
    err = call(capsys, "export", tmp_path, tmp_path / "x", "--part", "teacher")[2]
    assert "use --part with one of: 0/model, ema\n" in err


def test_export_overwrites_nothing_and_leaves_nothing_half_written(run, capsys, tmp_path):
    (tmp_path / "x").write_text("mine")
    assert "[file-exists]" in call(capsys, "export", run, tmp_path / "x")[2]
    assert "[export-not-written]" in call(capsys, "export", run, tmp_path / "none" / "x")[2]
    assert (tmp_path / "x").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "x"]


@pytest.mark.parametrize("command", [["export", "x.safetensors"], ["diff", "."]])
def test_a_damaged_snapshot_is_neither_compared_nor_exported(run, capsys, command, monkeypatch):
    monkeypatch.chdir(run)
    flip(run / "snapshots" / "step-2" / "tensors-0.bin", 99)
    code, _, err = call(capsys, command[0], run, *command[1:])
    assert code == 1 and "the snapshot is damaged: the SHA-256 of tensors-0.bin" in err


def test_those_of_every_training_and_stage_are_listed_and_the_last_one_is_taken(tmp_path, capsys):
    for folder, step in ((tmp_path, 3), (tmp_path / "fold-2", 5), (tmp_path / "fold-2" / "stage-2", 4)):
        with Saver(folder, ALONE) as saver:
            saver.save(step, SnapshotState({"model": {"w": torch.full((2,), float(step))}}))
    rows = json.loads(call(capsys, "list", tmp_path, "--json")[1])
    assert [row["snapshot"] for row in rows] == ["step-3", "fold-2/step-5", "fold-2/stage-2/step-4"]
    assert "tensors of step 4" in call(capsys, "export", tmp_path, tmp_path / "out.safetensors")[1]
    answers = json.loads(call(capsys, "verify", tmp_path, "--json")[1])
    assert [row["good"] for row in answers] == [True] * 3
