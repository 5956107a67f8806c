"""An optimizer's moments are copied beside the next step, and a snapshot is all the same that of its own step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import rankup
from rankup.errors import RankupError
from rankup.snapshots.diff import load_tensor
from rankup.snapshots.layout import entries
from rankup.snapshots.manifest import read_manifest
from rankup.snapshots.saver import Saver
from rankup.snapshots.state import SnapshotState, Staged
from rankup.world import World


def slow_copies(monkeypatch: pytest.MonkeyPatch, seconds: float = 0.3) -> None:
    finish = Staged.finish

    def late(staged: Staged) -> None:
        time.sleep(seconds)
        finish(staged)

    monkeypatch.setattr(Staged, "finish", late)


def saved(folder: Path, moments: torch.Tensor) -> tuple[Saver, SnapshotState]:
    saver = Saver(folder, World())
    return saver, SnapshotState({"m": moments}, stable=frozenset([id(moments)]))


def loaded(saver: Saver) -> torch.Tensor:
    found = saver.newest()
    assert found is not None
    into = {"m": torch.zeros(3)}
    found.load_tensors(into)
    return into["m"]


@pytest.fixture
def saving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Saver, torch.Tensor]]:
    """The save of some moments has returned, and they are not copied yet."""
    slow_copies(monkeypatch)
    moments = torch.ones(3)
    saver, state = saved(tmp_path, moments)
    with saver:
        saver.save(1, state)
        yield saver, moments


def test_a_save_returns_before_the_moments_are_copied_and_settle_waits_for_them(saving):
    saver, moments = saving
    assert saver._copied is not None and not saver._copied.is_set()
    saver.wait_staged()
    moments.fill_(2.0)
    saver.wait()
    assert loaded(saver).tolist() == [1.0] * 3


def test_moments_that_change_before_are_an_error_and_no_snapshot(saving):
    saver, moments = saving
    moments.zero_()
    with pytest.raises(RankupError) as caught:
        saver.wait()
    assert caught.value.code == "state-changed"
    assert saver.newest() is None
    saver.wait_staged()  # nobody waits for what is not to come


def test_in_a_run_the_optimizer_waits_with_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Every snapshot of a training in which each copy is late holds the moments of its own step."""
    slow_copies(monkeypatch, 0.05)
    moments: dict[int, torch.Tensor] = {}
    keep = rankup.Retention(last=10)
    run = rankup.init(snapshots=rankup.Snapshots(every="1 steps", directory=tmp_path, keep=keep))
    model, opt, data = run.prepare(
        torch.nn.Linear(3, 1),
        lambda p: torch.optim.Adam(p, lr=0.1),
        rankup.ResidentData(torch.ones(8, 3)),
        global_batch=2,
    )
    for x in run.steps(data, epochs=1):
        model(x).sum().backward()
        opt.step()
        opt.zero_grad()
        moments[run.global_step + 1] = opt.state[run._context.models[0].weight]["exp_avg"].clone()
    assert sorted(moments) == [1, 2, 3, 4]
    taken = {entry.step: entry for entry in entries(tmp_path)}
    for step, expected in moments.items():
        manifest = read_manifest(taken[step].path)
        found = load_tensor(taken[step], manifest, "0/optimizer/state/weight/exp_avg")
        assert torch.equal(found, expected), step
