"""What ranks record for `rankup verify`, and the points at which it interrupts them."""

from __future__ import annotations

import contextlib
import io
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.core.records import read_records
from rankup.runtime.checkpointing.policy import Snapshots
from rankup.runtime.digest import digest, rows
from rankup.runtime.tracing.fault_injection import FROZEN, FaultInjection
from rankup.runtime.tracing.run_digests import state_digests
from rankup.snapshots import disk
from rankup.snapshots.layout import entries


def train(directory: str, interrupt: str = "") -> list[float]:
    """Two epochs of three steps, in a plain loop; its losses."""
    os.environ |= {"RANKUP_TRACE": directory, "RANKUP_INTERRUPT": interrupt}
    os.environ |= {"RANKUP_SNAPSHOT_EVERY": "4 steps", "RANKUP_SNAPSHOT_DIR": f"{directory}/snapshots"}
    run = rankup.init(snapshots=Snapshots(every="off"))
    x = torch.arange(18.0).reshape(6, 3)
    model, opt, data = run.prepare(
        nn.Linear(3, 1),
        lambda p: torch.optim.SGD(p, lr=0.001, momentum=0.9),
        rankup.ResidentData(x),
        global_batch=2,
    )
    losses = []
    values = run.register(last=0.0)
    try:
        for batch in run.steps(data, epochs=2):
            loss = model(batch).square().mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            losses.append(loss.item())
            values.last = run.mean(loss.item())
    except SystemExit:
        losses.append(-1.0)
    return losses


def test_every_step_of_a_plain_loop_is_recorded_with_its_loss_samples_and_state(tmp_path: Path):
    (losses,) = run_ranks(train, 1, str(tmp_path))
    records = read_records(tmp_path / "rank-0.jsonl")
    epoch = ["epoch", *["step"] * 3, "behind"]
    assert [record["kind"] for record in records] == ["begin", *epoch, *epoch, "end"]
    steps = [record for record in records if record["kind"] == "step"]
    assert [record["step"] for record in records if record["kind"] == "behind"] == [3, 6]
    assert [record["step"] for record in steps] == [1, 2, 3, 4, 5, 6]
    assert [float.fromhex(record["loss"][0]) for record in steps] == losses
    assert [record["at"] for record in steps] == [[[e, s]] for e in (0, 1) for s in (1, 2, 3)]
    assert {row for record in steps[:3] for row in record["rows"]} == {
        row for record in steps[3:] for row in record["rows"]
    }
    names = {
        "model/weight",
        "model/bias",
        "optimizer/weight/momentum_buffer",
        "optimizer/weight/options",
        "registered/last",
    }
    assert names <= steps[0]["state"].keys()
    assert steps[0]["state"]["model/weight"] != steps[1]["state"]["model/weight"]
    assert records[-1]["state"] == steps[-1]["state"]


def logged() -> list[str]:
    run = rankup.init()
    run.log(accuracy=0.5 + run.world.rank)
    return [name for name in state_digests(run._context) if name.startswith("metrics/")]


def test_logged_numbers_that_are_in_snapshots_are_recorded_by_rank_0_whose_they_are():
    assert run_ranks(logged, 2) == [["metrics/accuracy"], []]


def test_each_rank_records_its_own_samples_and_the_same_weights(tmp_path: Path):
    run_ranks(train, 2, str(tmp_path))
    mine, theirs = (read_records(tmp_path / f"rank-{rank}.jsonl", "step") for rank in (0, 1))
    for one, other in zip(mine, theirs, strict=True):
        assert one["state"] == other["state"]
        assert not set(one["rows"]) & set(other["rows"])


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_stop_is_at_the_step_that_was_meant_and_saved_there(tmp_path: Path, world_size: int):
    said = run_ranks(train, world_size, str(tmp_path), "stop 4 0")
    assert all(len(losses) == 5 and losses[-1] == -1.0 for losses in said)
    assert entries(tmp_path / "snapshots")[-1].step == 4


def test_the_environment_decides_where_and_how_often_to_save(tmp_path: Path):
    run_ranks(train, 1, str(tmp_path))
    assert [entry.step for entry in entries(tmp_path / "snapshots")] == [4, 5, 6]  # 5: before the last step


def test_a_bad_interval_in_the_environment_is_one_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RANKUP_SNAPSHOT_EVERY", "now and then")
    with pytest.raises(rankup.RankupError, match="now and then"):
        rankup.init()


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Signals that this process would have sent itself."""
    sent: list[int] = []
    monkeypatch.setattr(
        "rankup.runtime.tracing.fault_injection.os.kill", lambda pid, number: sent.append(number)
    )
    monkeypatch.setattr(disk, "before", None)
    return sent


def test_a_process_freezes_after_the_step_when_what_it_saves_is_durable_and_says_so(
    tmp_path: Path, frozen: list[int]
):
    said: list[str] = []
    interruption = FaultInjection("step 9 0", 0, tmp_path, lambda: said.append("durable"))
    interruption.step(8)
    assert not frozen and not (tmp_path / FROZEN).exists()
    interruption.step(9)
    assert frozen == [signal.SIGSTOP] and (tmp_path / FROZEN).read_text() == "step"
    assert said == ["durable"]


def test_a_process_freezes_behind_the_epoch_that_was_meant_or_the_next_one(tmp_path: Path, frozen: list[int]):
    interruption = FaultInjection("behind 6 0", 0, tmp_path)
    interruption.step(6)
    interruption.reached("behind", 3)
    assert not frozen
    interruption.reached("behind", 9)
    assert frozen == [signal.SIGSTOP] and (tmp_path / FROZEN).read_text() == "behind"


def test_a_process_freezes_after_the_batch_of_an_evaluation_that_was_meant(tmp_path: Path, frozen: list[int]):
    interruption = FaultInjection("evaluation 6 0 2", 0, tmp_path)
    for done in (3, 3, 3, 6):
        interruption.evaluation(done)
    assert not frozen
    interruption.evaluation(6)
    assert frozen == [signal.SIGSTOP] and (tmp_path / FROZEN).read_text() == "evaluation"


def test_a_process_freezes_when_the_script_has_ended(tmp_path: Path, frozen: list[int]):
    interruption = FaultInjection("exit 6 0", 0, tmp_path)
    interruption.step(6)
    interruption.reached("behind", 6)
    assert not frozen
    interruption.reached("exit", 6)
    assert frozen == [signal.SIGSTOP] and (tmp_path / FROZEN).read_text() == "exit"


def test_a_process_freezes_before_the_change_on_disk_that_was_meant(tmp_path: Path, frozen: list[int]):
    FaultInjection("save 3 0", 0, tmp_path)
    disk.make_folder(tmp_path / "a")
    disk.make_folder(tmp_path / "b")
    assert not frozen
    disk.make_folder(tmp_path / "c")
    assert frozen == [signal.SIGSTOP]


def test_another_rank_goes_on(tmp_path: Path, frozen: list[int]):
    interruption = FaultInjection("step 1 1;save 1 1", 0, tmp_path)
    interruption.step(1)
    disk.make_folder(tmp_path / "a")
    assert not frozen


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (torch.tensor(0.0), torch.tensor(-0.0)),
        ({"a": 1}, {"b": 1}),
        ([1, [2]], [[1], 2]),
        (1, True),
        (0.1, 0.1 + 2**-55),
    ],
)
def test_anything_that_differs_has_another_digest(one: Any, other: Any):
    assert digest(one) != digest(other)
    assert digest(one) == digest(one)


def test_a_sample_has_the_same_digest_wherever_it_stands_in_a_batch():
    x, y = torch.arange(6.0).reshape(3, 2), torch.tensor([5, 6, 7])
    assert rows((x, y), 3) == rows((x.flip(0), y.flip(0)), 3)[::-1]
    assert len(set(rows({"x": x, "y": y}, 3))) == 3


def warned(directory: str) -> str:
    """What a run of two epochs with a schedule that nobody registered says on stderr."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        run = rankup.init(snapshots=Snapshots(directory=directory))
        x = torch.arange(18.0).reshape(6, 3)
        model, opt, data = run.prepare(
            nn.Linear(3, 1),
            lambda p: torch.optim.SGD(p, lr=0.001),
            rankup.ResidentData(x),
            global_batch=2,
        )
        schedule, frozen = torch.optim.lr_scheduler.StepLR(opt, 1), nn.Linear(3, 1)
        for epoch in run.epochs(2):
            for batch in epoch:
                (model(batch) - frozen(batch).detach()).square().mean().backward()
                opt.step()
                opt.zero_grad()
            schedule.step()
    return said.getvalue()


def test_an_ordinary_run_that_saves_warns_once_on_rank_0_of_state_that_is_not_registered(tmp_path: Path):
    first, second = run_ranks(warned, 2, str(tmp_path), env={"RANKUP_LOST": ""})
    assert first.count("warning: these values change in training and are in no snapshot") == 1
    assert "run.register(schedule=schedule)" in first and "frozen" not in first
    assert second == ""
