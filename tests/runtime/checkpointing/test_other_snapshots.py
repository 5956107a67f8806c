"""A directory whose snapshots belong to something else: one clear error, and they stay as they are."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.snapshots.layout import entries
from rankup.snapshots.manifest import FORMAT


class Exploit:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch it-ran",)


def train(
    folder: str,
    outputs: int = 1,
    samples: int = 12,
    global_batch: int = 4,
    seed: int = 0,
    keeps: bool = False,
) -> str:
    """The error's code and message, or where it began."""
    run = rankup.init(seed=seed, snapshots=rankup.Snapshots(every="2 steps", directory=folder))
    model, opt, data = run.prepare(
        nn.Linear(3, outputs),
        lambda p: torch.optim.SGD(p, lr=0.1),
        rankup.ResidentData(torch.ones(samples, 3)),
        global_batch=global_batch,
    )
    if keeps:
        run.register(schedule=torch.optim.lr_scheduler.StepLR(opt, 1))
    try:
        for x in run.steps(data, epochs=2):
            model(x).sum().backward()
            opt.step()
            opt.zero_grad()
    except rankup.RankupError as error:
        return f"{error.code}: {error.message} {error.hint}"
    return "trained"


@pytest.fixture
def snapshots(tmp_path: Path) -> Path:
    assert run_ranks(train, 1, str(tmp_path)) == ["trained"]
    return tmp_path


def test_those_of_an_optimizer_without_any_state_are_gone_on_from(tmp_path: Path):
    """SGD without momentum keeps nothing, and an empty level leaves no trace in a snapshot."""
    folder = str(tmp_path)
    run_ranks(train, 1, folder)
    assert run_ranks(train, 1, folder) == ["trained"]


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("other", "words"),
    [
        ((2,), ("other-model", "0/model/weight is float32[1, 3] in the snapshot, float32[2, 3] in this run")),
        ((1, 13), ("settings-changed", "length of the data: 12 when saved, 13 now; samples of the data: ")),
        ((1, 12, 6), ("settings-changed", "global_batch of the data: 4 when saved, 6 now")),
        ((1, 12, 4, 1), ("other-seed", "seed 0, this run has 1", "rankup.init(seed=0)")),
        ((1, 12, 4, 0, True), ("other-registered", "['schedule']")),
    ],
)
def test_those_of_another_training_are_refused_and_left_alone(
    snapshots: Path, other: tuple[Any, ...], words: tuple[str, ...]
):
    before = bytes_of(snapshots)
    (said,) = run_ranks(train, 1, str(snapshots), *other)
    assert all(word in said for word in words), said
    assert bytes_of(snapshots) == before


def change(snapshots: Path, name: str, content: bytes) -> None:
    """A file of every snapshot, and its line in SHA256SUMS: as if it had been written so."""
    for step in snapshots.glob("step-*"):
        (step / name).write_bytes(content)
        sums = (step / "SHA256SUMS").read_text().splitlines()
        new = f"{hashlib.sha256(content).hexdigest()}  {name}"
        (step / "SHA256SUMS").write_text(
            "".join(f"{new if line.endswith('  ' + name) else line}\n" for line in sums)
        )


def test_those_of_another_format_are_refused_and_left_alone(snapshots: Path):
    manifest = json.loads(entries(snapshots)[-1].path.joinpath("manifest.json").read_text())
    change(snapshots, "manifest.json", json.dumps({**manifest, "format": FORMAT + 1}).encode())
    before = bytes_of(snapshots)
    (said,) = run_ranks(train, 1, str(snapshots))
    assert said.startswith(
        f"other-format: the snapshot has format {FORMAT + 1}, but this version of rankup reads format {FORMAT}"
    )
    assert bytes_of(snapshots) == before


def test_one_that_holds_code_is_refused_and_nothing_of_it_runs(
    snapshots: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    evil = tmp_path / "evil.pt"
    torch.save({"rng": Exploit()}, evil)
    content = evil.read_bytes()
    for step in snapshots.glob("step-*"):
        manifest = json.loads((step / "manifest.json").read_text())
        manifest["files"]["states-0.bin"] = len(content)
        change(step.parent, "states-0.bin", content)
        change(step.parent, "manifest.json", json.dumps(manifest).encode())
        break
    (said,) = run_ranks(train, 1, str(snapshots))
    assert said.startswith("unsafe-snapshot: states-0.bin contains more than tensors and plain values"), said
    assert list((tmp_path / "here").iterdir()) == []
