"""Trainings whose loops are open at the same time: a resume would mix their times, and rank 0 says so."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import rankup

X = torch.linspace(-1, 1, 8)[:, None]
IN_TURNS, IN_A_LOOP = "take turns", "several trainings without a name"


def training(folder: Path, name: str):
    run = rankup.init(name=name, snapshots=rankup.Snapshots(every="2 steps", directory=folder))
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(X), global_batch=4
    )

    def step(x: torch.Tensor) -> None:
        run.backward((model(x) - x).square().mean())
        run.step(opt)

    return run, data, step


def train(folder: Path, name: str) -> None:
    run, data, step = training(folder, name)
    for x in run.steps(data, epochs=1):
        step(x)


def nested(folder: Path, names: list[str]) -> None:
    run, _, step = training(folder, "outer")
    for epoch in run.epochs(len(names)):
        for x in epoch:
            step(x)
        train(folder, names[epoch.index])


def test_trainings_that_take_turns_are_warned_of_once(tmp_path, capsys):
    a, _, step_a = training(tmp_path, "a")
    b, _, step_b = training(tmp_path, "b")
    for of_a, of_b in zip(a.epochs(2), b.epochs(2), strict=True):
        for x in of_a:
            step_a(x)
        for x in of_b:
            step_b(x)
    said = capsys.readouterr().err
    assert said.count(IN_TURNS) == 1 and IN_A_LOOP not in said


def test_trainings_one_after_the_other_are_not_warned_of(tmp_path, capsys):
    for name in ("", "", "c"):
        train(tmp_path, name)
    run, data, step = training(tmp_path, "left")
    for x in run.steps(data, epochs=1):
        step(x)
        break
    train(tmp_path, "")
    said = capsys.readouterr().err
    assert IN_TURNS not in said and IN_A_LOOP not in said


def test_trainings_with_names_in_a_loop_are_not_warned_of(tmp_path, capsys):
    nested(tmp_path, ["probe-0", "probe-1"])
    said = capsys.readouterr().err
    assert IN_TURNS not in said and IN_A_LOOP not in said


def test_trainings_without_a_name_in_a_loop_are_warned_of_once(tmp_path, capsys):
    nested(tmp_path, ["", "", ""])
    said = capsys.readouterr().err
    assert said.count(IN_A_LOOP) == 1 and IN_TURNS not in said
