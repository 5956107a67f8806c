"""A run that is asked to stop saves, ends well, and goes on exactly from there; whatever it was doing."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.runtime.checkpointing import saves, stop
from rankup.runtime.checkpointing.policy import Snapshots
from rankup.snapshots.layout import entries
from rankup.snapshots.saver import Saver
from snapshot_faults import ALONE

EPOCHS, SAMPLES, BATCH = 3, 20, 4  # 5 steps per epoch
BOTH = pytest.mark.parametrize("world_size", [1, 2])


class Ema:
    """Something to be kept: an average of the losses, and how often it was fed."""

    def __init__(self) -> None:
        self.value, self.count = torch.zeros(()), 0

    def add(self, loss: float) -> None:
        self.value, self.count = self.value * 0.9 + loss * 0.1, self.count + 1

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value, self.count = state["value"], state["count"]


def train(directory: str, when: str, every: str = "off") -> dict[str, Any]:
    """One attempt, with dropout, BatchNorm, augmentation, a schedule, an average. ``when`` to stop: phase, number."""
    os.environ["RANKUP_RUN_DIR"] = directory
    stop.AGREE_EVERY_S = 0.0  # at every step: all of it takes less than the second that is usual
    said: dict[str, Any] = {"losses": {}, "after": [], "tested": [], "ended": False}
    phase, _, at = when.partition(" ")

    def ask(here: str, number: int) -> None:
        if phase == here and int(at) == number:
            (Path(directory) / "STOP").write_text("user 0\n")

    saves.KEEPING_SHARE = 1e9
    run = rankup.init(seed=3, precision="fp64", snapshots=Snapshots(every=every))
    ask("download", 0)
    with rankup.first():
        pass
    x = torch.arange(float(SAMPLES))[:, None].repeat(1, 3)
    noisy = rankup.ResidentData(x, transform=lambda c, random: (c[0] + random.uniform(3).to(c[0].dtype),))
    net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))
    model, opt, data = run.prepare(net, lambda p: torch.optim.Adam(p, lr=0.05), noisy, global_batch=BATCH)
    schedule, ema = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.5), Ema()
    run.register(schedule=schedule, ema=ema)
    try:
        for epoch in run.epochs(EPOCHS, data):
            for batch in epoch:
                ask("step", run.global_step)
                loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
                loss.backward()
                opt.step()
                opt.zero_grad()
                said["losses"][run.global_step] = loss.item()
                ema.add(run.mean(loss.item()))
            schedule.step()
            net.eval()
            total = 0.0
            for number, batch in enumerate(run.batches(rankup.ResidentData(x), global_batch=5)):
                ask("evaluation", 10 * epoch.index + number)
                total += net(batch).sum().item()
            net.train()
            said["tested"].append(run.sum(total))
            run.log(total=said["tested"][-1])
            said["after"].append(epoch.index)
            ask("behind", epoch.index)
        said["ended"] = True
    except SystemExit as exit:
        said["exit"] = exit.code
    said["weights"] = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    said["moments"] = [s["exp_avg"].clone() for s in opt.state.values()]
    said["kept"] = (opt.param_groups[0]["lr"], ema.value, ema.count)
    return said


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


@functools.cache
def uninterrupted(world_size: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as directory:
        return run_ranks(train, world_size, directory, "")


PHASES = ["download 0", "step 0", "step 2", "step 5", "evaluation 0", "evaluation 12", "behind 1"]


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("world_size", "phase"),
    [
        *((2, phase) for phase in ("download 0", "step 2", "evaluation 12", "behind 1")),
        *(
            pytest.param(size, phase, marks=pytest.mark.campaign)
            for size in (1, 2)
            for phase in PHASES
            if size == 1 or phase in ("step 0", "step 5", "evaluation 0")
        ),
    ],
)
def test_a_request_in_any_phase_saves_ends_well_and_goes_on_exactly(
    tmp_path: Path, phase: str, world_size: int
):
    stopped = run_ranks(train, world_size, str(tmp_path), phase)
    assert [said.get("exit") for said in stopped] == [0] * world_size
    assert (tmp_path / "outcome").read_text() == "requeue\n"
    (tmp_path / "STOP").unlink()
    resumed = run_ranks(train, world_size, str(tmp_path), "")
    for before, after, all_of_it in zip(stopped, resumed, uninterrupted(world_size), strict=True):
        assert after["ended"]
        assert {**before["losses"], **after["losses"]} == all_of_it["losses"]
        # No step twice but the last one before an evaluation that was interrupted.
        again = before["losses"].keys() & after["losses"].keys()
        assert again == ({"evaluation 0": {4}, "evaluation 12": {9}}.get(phase, set()))
        for what in ("weights", "moments", "kept"):
            assert equal(after[what], all_of_it[what]), what
        assert before["after"] + after["after"] == [
            0,
            1,
            2,
        ]  # what stands behind the loop runs once per epoch
        assert before["tested"] + after["tested"] == all_of_it["tested"]


def test_a_run_that_is_done_begins_no_epoch_again(tmp_path: Path):
    (first,) = run_ranks(train, 1, str(tmp_path), "", "10m")
    (again,) = run_ranks(train, 1, str(tmp_path), "", "10m")
    assert again["losses"] == {
        14: first["losses"][14]
    }  # its last step, so that the code after it finds its variables
    assert (
        again["ended"]
        and equal(again["weights"], first["weights"])
        and again["tested"] == first["tested"][-1:]
    )


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("every", "steps"), [("2 steps", [12, 14, 15]), ("1 epoch", [5, 10, 14, 15]), ("off", [])]
)
def test_snapshots_are_taken_as_often_as_asked(tmp_path: Path, every: str, steps: list[int]):
    run_ranks(train, 1, str(tmp_path), "", every)
    assert sorted({entry.step for entry in entries(tmp_path / "snapshots")}) == steps


def test_another_number_of_ranks_goes_on_with_the_same_samples(tmp_path: Path):
    stopped = run_ranks(train, 1, str(tmp_path), "step 7")
    (tmp_path / "STOP").unlink()
    resumed = run_ranks(train, 2, str(tmp_path), "")
    assert all(said["ended"] and min(said["losses"]) == max(stopped[0]["losses"]) + 1 for said in resumed)
    assert equal(resumed[0]["weights"]["0.weight"], resumed[1]["weights"]["0.weight"])


def test_whoever_cannot_take_a_rank_s_own_batch_statistics_gets_their_mean(tmp_path: Path):
    run_ranks(train, 2, str(tmp_path), "step 7")
    with Saver(tmp_path / "snapshots", ALONE) as saver:
        found = saver.newest()
    assert found is not None
    buffers = [state["buffers"][0] for state in found.adopted_rank_states()]
    names = ["1.running_mean", "1.running_var", "1.num_batches_tracked"]
    saved = {name: torch.zeros_like(buffers[0][name]) for name in names}
    found.load_tensors({"0": {"model": saved}}, partial=True)
    for name in names[:2]:
        assert not torch.equal(buffers[0][name], buffers[1][name])  # each rank's own is there, too
        assert torch.equal(saved[name], (buffers[0][name] + buffers[1][name]) / 2)
    assert saved[names[2]] == buffers[0][names[2]] > 5


def terminated(directory: str, workers: int) -> tuple[int | str | None, bool]:
    """SIGTERM to this rank and to its loader workers, as a scheduler sends it."""
    os.environ["RANKUP_RUN_DIR"] = directory
    stop.AGREE_EVERY_S = 0.0
    run = rankup.init(snapshots=Snapshots(every="off"))
    data = torch.utils.data.TensorDataset(torch.arange(64.0)[:, None])
    model, opt, feed = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.0), data, global_batch=2, num_workers=workers
    )
    hit = False
    try:
        for (x,) in run.steps(feed, epochs=10):
            if run.global_step == 3 and run.world.rank == run.world.world_size - 1:
                children = multiprocessing.active_children()
                hit = len(children) == workers
                for pid in [*(child.pid for child in children if child.pid), os.getpid()]:
                    os.kill(pid, signal.SIGTERM)
            model(x).sum().backward()
            opt.step()
    except SystemExit as exit:
        return exit.code, hit
    return "went on", hit


@pytest.mark.parametrize(("world_size", "workers"), [(1, 2), (2, 0)])
def test_sigterm_to_a_rank_and_its_loader_workers_is_a_request(tmp_path: Path, world_size: int, workers: int):
    codes = run_ranks(terminated, world_size, str(tmp_path), workers)
    assert [code for code, _ in codes] == [0] * world_size
    assert codes[-1][1]
    assert (tmp_path / "outcome").read_text() == "requeue\n"
    assert len(entries(tmp_path / "snapshots")) == 1


@pytest.mark.usefixtures("warm_python")
def test_a_script_that_leaves_its_loop_ends_well_and_with_a_whole_snapshot(tmp_path: Path):
    (tmp_path / "train.py").write_text(
        "import torch, rankup\n"
        "run = rankup.init(snapshots=rankup.Snapshots(every='1 steps', directory='snapshots'))\n"
        "model, opt, data = run.prepare(torch.nn.Linear(4000, 4000), lambda p: torch.optim.SGD(p, lr=.1),\n"
        "                               rankup.ResidentData(torch.zeros(8, 4000)), global_batch=2)\n"
        "for x in run.steps(data, epochs=1):\n"
        "    if run.global_step == 1:\n"
        "        break\n"
        "    model(x).sum().backward(); opt.step(); opt.zero_grad()\n"
    )
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=90
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [entry.path.name for entry in entries(tmp_path / "snapshots")] == ["step-1"]


def handlers() -> tuple[bool, bool]:
    """Whether the handler of SIGTERM is the same after a loop, and another one within."""
    before = signal.getsignal(signal.SIGTERM)
    run = rankup.init()
    _, _, feed = run.prepare(nn.Linear(1, 1), None, rankup.ResidentData(torch.zeros(2, 1)), global_batch=1)
    inside = [signal.getsignal(signal.SIGTERM) for _ in run.steps(feed, epochs=1)]
    return signal.getsignal(signal.SIGTERM) == before, all(handler != before for handler in inside)


def test_after_the_loop_a_signal_ends_the_process_as_before():
    # In a process of its own: a loop that another test has left takes its handler away when it is collected.
    assert run_ranks(handlers, 1) == [(True, True)]


def test_a_state_is_loaded_between_epochs_and_not_in_a_body():
    run = rankup.init(device="cpu", seed=1)
    data = rankup.ResidentData(torch.arange(40.0).reshape(-1, 1))
    _, _, feed = run.prepare(nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=4)
    saved = run.state.state_dict()
    for epoch in run.epochs(1):
        for _ in epoch:
            with pytest.raises(rankup.RankupError, match="in the body of a loop") as refused:
                run.state.load_state_dict(saved)
            assert refused.value.code == "load-in-body"
        assert feed.position.step == run.global_step == 10
        run.state.load_state_dict(saved)
        assert feed.position.step == run.global_step == 0
        break
