"""A script that asks for other settings than its snapshot: an error that names old and new, or what the user chose."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    MultiStepLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

import rankup
from ranks import run_ranks
from rankup.runtime.checkpointing import stages

SAMPLES, STEPS = 24, 6  # of 4 samples; 2 epochs

DEFAULT: dict[str, Any] = {
    "optimizer": "sgd",
    "lr": 0.03,
    "schedule": "none",
    "batch": 4,
    "precision": "fp64",
}


def optimizer_of(settings: dict[str, Any]) -> Callable[[Any], Any]:
    lr, kind = settings["lr"], settings["optimizer"]
    more = {k: settings[k] for k in ("weight_decay", "foreach", "fused", "amsgrad") if k in settings}
    if kind == "two groups":
        return lambda p: SGD([{"params": p[:1]}, {"params": p[1:], "lr": 2 * lr}], lr=lr)
    if kind == "tensor lr":
        return lambda p: Adam(p, lr=torch.tensor(lr, dtype=torch.float64), **more)
    if kind == "sgd":
        return lambda p: SGD(p, lr=lr, momentum=settings.get("momentum", 0.9), **more)
    return lambda p: {"adam": Adam, "adamw": AdamW}[kind](
        p, lr=lr, betas=settings.get("betas", (0.9, 0.999)), **more
    )


def schedule_of(kind: str, opt: Any, settings: dict[str, Any]) -> Any:
    gamma = settings.get("gamma", 0.5)
    return {
        "step": lambda: StepLR(opt, 2, gamma=gamma),
        "milestones": lambda: MultiStepLR(opt, settings.get("milestones", [3]), gamma=gamma),
        "cosine": lambda: CosineAnnealingLR(opt, 12, eta_min=0.001),
        "lambda": lambda: LambdaLR(opt, lambda epoch: 1 / (1 + epoch)),
        "onecycle": lambda: OneCycleLR(opt, settings["lr"], total_steps=13),
        "plateau": lambda: ReduceLROnPlateau(opt, factor=0.5, patience=0),
        "warm": lambda: SequentialLR(
            opt, [LinearLR(opt, 0.25, total_iters=3), StepLR(opt, 2, gamma=gamma)], [3]
        ),
    }[kind]()


def train(directory: str, changed: dict[str, Any], stop_at: int, resume_with: str | None) -> dict[str, Any]:
    """One attempt: rates used by step, samples seen, what was printed, the error."""
    stages._unnamed.clear()  # as in a process of its own, which costs four seconds
    settings = DEFAULT | changed
    run = rankup.init(
        precision=settings["precision"],
        exact=settings.get("exact", "same-world"),
        snapshots=rankup.Snapshots(every="off", directory=directory, resume_with=resume_with),
    )
    lines: list[str] = []
    run._context.print = lambda *values: lines.append(" ".join(map(str, values)))  # type: ignore[method-assign]
    torch.manual_seed(0)
    first = settings.get("first", 0.0)
    data = rankup.ResidentData(torch.arange(first, first + SAMPLES, dtype=torch.float64)[:, None] / SAMPLES)
    if settings.get("scaled"):
        settings["lr"] *= run.world.world_size
    options = {k: settings[k] for k in ("shuffle", "clip", "accumulate") if k in settings}
    model, opt, feed = run.prepare(
        nn.Linear(1, 1), optimizer_of(settings), data, global_batch=settings["batch"], **options
    )
    schedule = None
    if settings["schedule"] != "none":
        schedule = schedule_of(settings["schedule"], opt, settings)
        run.register(schedule=schedule)
    if settings.get("own") is not None:  # a script that has checkpoints of its own goes on from them
        own, begun = settings["own"], copy.deepcopy(opt.state_dict())
        if own:
            opt.load_state_dict(own["optimizer"])
            if schedule is not None:
                schedule.load_state_dict(own["schedule"])
        else:  # an LR finder
            opt.param_groups[0]["lr"] = 7.0
            opt.load_state_dict(begun)
    opt.param_groups[0]["lr"] = settings.get("after", opt.param_groups[0]["lr"])
    said: dict[str, Any] = {"rates": [], "seen": [], "lines": lines, "groups": [], "state": []}
    try:
        for x in run.steps(feed, epochs=2):
            if not said["groups"]:
                said["state"] = [sorted(fields) for fields in opt.state.values()]
                said["groups"] = [{k: v for k, v in g.items() if k != "params"} for g in opt.param_groups]
            said["rates"].append(float(opt.param_groups[-1]["lr"]))
            said["seen"].append((x * SAMPLES).flatten().long().tolist() if run.batch.samples else [])
            run.backward((model(x.to(next(model.parameters()).dtype)) - x).square().mean())
            run.step(opt)
            if schedule is not None:
                schedule.step(*([1.0] if settings["schedule"] == "plateau" else []))
            if run._context.steps_reached == stop_at:
                run.save()
                said["own"] = copy.deepcopy(
                    {"optimizer": opt.state_dict(), "schedule": schedule and schedule.state_dict()}
                )
                break
    except rankup.RankupError as error:
        said["error"] = (error.code, error.message.removeprefix("the settings have changed: "), error.hint)
    return said


Case = tuple[dict[str, Any], dict[str, Any], str]
CHANGES: dict[str, Case] = {
    "lr": ({}, {"lr": 0.001}, "lr of the optimizer: 0.03 when saved, 0.001 now"),
    "two": (
        {"lr": 0.04},
        {"weight_decay": 0.1, "momentum": 0.8, "lr": 0.05},
        "lr of the optimizer: 0.04 when saved, 0.05 now; momentum of the optimizer: 0.9 when saved, 0.8 now; "
        "weight_decay of the optimizer: 0 when saved, 0.1 now",
    ),
    "betas": (
        {"optimizer": "adam"},
        {"betas": (0.8, 0.999)},
        "betas of the optimizer: (0.9, 0.999) when saved, (0.8, 0.999) now",
    ),
    "tensor": ({"optimizer": "tensor lr"}, {"lr": 0.5}, "lr of the optimizer: 0.03 when saved, 0.5 now"),
    "class": ({"optimizer": "adam"}, {"optimizer": "adamw"}, "the optimizer: Adam when saved, AdamW now; "),
    "groups": ({}, {"optimizer": "two groups"}, "parameter groups of the optimizer: 1 when saved, 2 now"),
    "group": (
        {"optimizer": "two groups"},
        {"lr": 0.1},
        "lr of the optimizer, group 1: 0.03 when saved, 0.1 now; "
        "lr of the optimizer, group 2: 0.06 when saved, 0.2 now",
    ),
    "scheduled": (
        {"schedule": "onecycle"},
        {"lr": 0.3},
        "lr of the optimizer: 0.0012 when saved, 0.012 now; max_lr of the optimizer: 0.03 when saved, 0.3 now; "
        "min_lr of the optimizer: 1.2e-07 when saved, 1.2e-06 now",
    ),
    "gamma": ({"schedule": "step"}, {"gamma": 0.1}, "gamma of schedule: 0.5 when saved, 0.1 now"),
    "schedule": ({"schedule": "step"}, {"schedule": "lambda"}, "schedule: StepLR when saved, LambdaLR now"),
    "nested": ({"schedule": "warm"}, {"gamma": 0.1}, "gamma of schedule: 0.5 when saved, 0.1 now"),
    "milestones": (
        {"schedule": "milestones"},
        {"milestones": [4]},
        "milestones of schedule: {'3': 1} when saved, {'4': 1} now",
    ),
    "shuffle": ({}, {"shuffle": False}, "shuffle of the data: True when saved, False now"),
    "clip": ({}, {"clip": 1.0}, "clip of the optimizer: None when saved, 1 now"),
    "accumulate": ({}, {"accumulate": 2}, "accumulate of the data: 1 when saved, 2 now"),
    "batch": ({}, {"batch": 8}, "global_batch of the data: 4 when saved, 8 now"),
    "precision": (
        {"precision": "fp32"},
        {"precision": "bf16"},
        "precision of the run: fp32 when saved, bf16 now",
    ),
    "exact": ({}, {"exact": "any-world"}, "exact of the run: same-world when saved, any-world now"),
}
FIXED = {"class", "groups", "schedule", "shuffle", "clip", "accumulate", "batch", "precision", "exact"}


def every_change(directory: str) -> dict[str, Any]:
    """Each case in a directory of its own: saved, and asked again without a choice, with old, with new."""
    said = {}
    for name, (before, after, _) in CHANGES.items():
        train(f"{directory}/{name}", before, 3, None)
        said[name] = [
            train(f"{directory}/{name}", before | after, stop_at, choice)
            for choice, stop_at in ((None, 4), ("old", 4), ("new", 5))
        ]
    same = {"optimizer": "adam", "schedule": "cosine"}
    train(f"{directory}/same", same, 3, None)
    said["same"] = [train(f"{directory}/same", same | {"foreach": True}, 4, None)]
    return said


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, pytest.param(2, marks=pytest.mark.campaign)])
def test_each_change_is_named_and_a_choice_is_followed(tmp_path: Path, world_size: int):
    for said in run_ranks(every_change, world_size, str(tmp_path)):
        for name, (_, _, message) in CHANGES.items():
            refused, old, new = said[name]
            assert refused["error"][0] == "settings-changed" and refused["error"][1].startswith(message), name
            assert (
                name == "class" or refused["error"][1] == message
            )  # whose options differ by versions of torch
            assert "--resume-with new (or RANKUP_RESUME_WITH=new)" in refused["error"][2]
            assert refused["rates"] == []
            assert ("error" in old) == (name in FIXED), name
            steps = 5 - (3 if name in FIXED else 4)
            assert "error" not in new and new["rates"], (name, new)
            if name not in ("accumulate", "exact"):  # whose steps are several batches
                assert len(new["rates"]) == steps, name
            assert f"resumed with the new settings. {refused['error'][1]}" in new["lines"]
        assert "error" not in said["same"][0]
        assert said["same"][0]["groups"][0]["foreach"] is True  # how kernels are launched is the script's
        new = {name: said[name][2] for name in CHANGES}
        assert said["lr"][1]["rates"] == [0.03] and new["lr"]["rates"] == [0.001]
        assert new["two"]["groups"][0]["momentum"] == 0.8 and new["two"]["groups"][0]["weight_decay"] == 0.1
        assert new["betas"]["groups"][0]["betas"] == (0.8, 0.999)
        assert new["tensor"]["rates"] == [0.5]
        assert new["class"]["state"] == [["exp_avg", "exp_avg_sq", "step"]] * 2  # has the same fields
        assert new["class"]["groups"][0]["weight_decay"] == 0.01  # AdamW's
        assert new["group"]["rates"] == [0.2]
        assert new["groups"]["rates"] == [0.06, 0.06]


# What each schedule gives for another base rate, after three steps; the plain one is the reference.
@pytest.mark.parametrize("kind", ["step", "milestones", "cosine", "lambda", "onecycle", "plateau", "warm"])
def test_a_new_rate_holds_for_the_rest_of_the_schedule(tmp_path: Path, kind: str):
    train(str(tmp_path / "cut"), {"schedule": kind}, 4, None)
    resumed = train(str(tmp_path / "cut"), {"schedule": kind, "lr": 0.3}, 0, "new")
    whole = train(str(tmp_path / "whole"), {"schedule": kind, "lr": 0.3}, 0, None)
    assert len(whole["rates"]) == 12 and len(set(whole["rates"])) > 1
    assert resumed["rates"] == pytest.approx(whole["rates"][4:], rel=1e-12 if kind != "cosine" else 1e-9)


def test_a_new_gamma_is_that_of_the_whole_schedule(tmp_path: Path):
    train(str(tmp_path / "cut"), {"schedule": "step"}, 4, None)
    resumed = train(str(tmp_path / "cut"), {"schedule": "step", "gamma": 0.1}, 0, "new")
    whole = train(str(tmp_path / "whole"), {"schedule": "step", "gamma": 0.1}, 0, None)
    assert resumed["rates"] == pytest.approx(whole["rates"][4:])


def test_old_asks_again_and_new_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    directory = str(tmp_path)
    train(directory, {}, 3, None)
    assert train(directory, {"lr": 0.1}, 4, "old")["rates"] == [0.03]
    assert train(directory, {"lr": 0.1}, 5, None)["error"][0] == "settings-changed"
    monkeypatch.setenv("RANKUP_RESUME_WITH", "new")
    assert train(directory, {"lr": 0.1}, 5, "old")["rates"] == [0.1]
    monkeypatch.delenv("RANKUP_RESUME_WITH")
    assert train(directory, {"lr": 0.1}, 6, None)["rates"] == [0.1]
    with pytest.raises(rankup.RankupError, match=r"resume_with must be new .* or old .*, got 'newest'"):
        rankup.Snapshots(resume_with="newest")


def test_state_of_other_fields_is_left_behind_and_that_is_said(tmp_path: Path):
    train(str(tmp_path / "kind"), {}, 3, None)
    other = train(str(tmp_path / "kind"), {"optimizer": "adam"}, 4, "new")
    assert other["state"] == [] and other["rates"] == [0.03]
    assert (
        "Adam begins without a state: the saved one (momentum_buffer) is of other settings" in other["lines"]
    )
    train(str(tmp_path / "option"), {"optimizer": "adam"}, 3, None)
    other = train(str(tmp_path / "option"), {"optimizer": "adam", "amsgrad": True}, 5, "new")
    assert other["state"] == [] and len(other["rates"]) == 2


@pytest.mark.parametrize(
    ("stop_at", "batch", "skipped"),
    [(4, 8, 0), (3, 8, 4), (3, 4, None), (5, 24, 4), (2, 2, 0)],
)
def test_a_new_batch_goes_on_at_the_next_whole_one(
    tmp_path: Path, stop_at: int, batch: int, skipped: int | None
):
    before = train(str(tmp_path), {}, stop_at, None)
    after = train(str(tmp_path), {"batch": batch}, 0, "new")
    first = [sample for step in before["seen"] for sample in step]
    epoch = (
        first + [sample for step in after["seen"] for sample in step][: SAMPLES - len(first) - (skipped or 0)]
    )
    assert len(set(epoch)) == len(epoch) == SAMPLES - (skipped or 0)
    assert sum(map(len, after["seen"])) == 2 * SAMPLES - len(first) - (skipped or 0)
    said = [line for line in after["lines"] if "skipped" in line]
    assert said == (
        [
            f"epoch 1 goes on after {-(-stop_at * 4 // batch)} steps of the new batches: {skipped} samples are skipped"
        ]
        if skipped
        else []
    )


def test_a_new_order_in_the_middle_of_an_epoch_is_said(tmp_path: Path):
    train(str(tmp_path), {}, 3, None)
    after = train(str(tmp_path), {"shuffle": False}, 4, "new")
    assert after["seen"] == [[12, 13, 14, 15]]
    assert any(
        "goes on after 3 steps of the new batches: their order is another" in line for line in after["lines"]
    )


def test_a_rate_that_is_scaled_by_the_number_of_ranks_changes_with_it_and_the_hint_says_why_not(
    tmp_path: Path,
):
    run_ranks(train, 3, str(tmp_path), {"scaled": True}, 3, None)
    for said in run_ranks(train, 2, str(tmp_path), {"scaled": True}, 4, None):
        code, message, hint = said["error"]
        assert (code, message) == ("settings-changed", "lr of the optimizer: 0.09 when saved, 0.06 now")
        assert "a learning rate must not be multiplied by world_size" in hint


def test_what_may_differ_is_no_change(tmp_path: Path):
    directory = str(tmp_path)
    assert "error" not in run_ranks(train, 2, directory, {"optimizer": "adam"}, 3, None)[0]
    assert "error" not in run_ranks(train, 1, directory, {"optimizer": "adam", "fused": True}, 4, None)[0]


def test_other_samples_of_the_same_number_are_noticed(tmp_path: Path):
    train(str(tmp_path), {}, 3, None)
    code, message, hint = train(str(tmp_path), {"first": 1.0}, 4, None)["error"]
    assert code == "settings-changed" and message.startswith("samples of the data: ")
    assert hint.endswith("since a snapshot cannot: samples of the data")
    after = train(str(tmp_path), {"first": 1.0}, 4, "new")
    assert any(
        "goes on after 3 steps of the new batches: their order is another" in line for line in after["lines"]
    )


def test_a_state_in_memory_asks_as_well():
    def make(lr: float, choice: str | None) -> tuple[rankup.Run, Any]:
        run = rankup.init(snapshots=rankup.Snapshots(resume_with=choice))
        _, opt, _ = run.prepare(nn.Linear(1, 1), lambda p: SGD(p, lr=lr))
        return run, opt

    saved = make(0.1, None)[0].state.state_dict()
    with pytest.raises(rankup.RankupError, match=r"lr of the optimizer: 0.1 when saved, 0.2 now"):
        make(0.2, None)[0].state.load_state_dict(saved)
    for choice, rate in (("old", 0.1), ("new", 0.2)):
        run, opt = make(0.2, choice)
        run.state.load_state_dict(saved)
        assert opt.param_groups[0]["lr"] == rate


def test_settings_of_several_models_are_numbered():
    def make(lr: float, act: nn.Module) -> rankup.Run:
        run = rankup.init()
        run.prepare(nn.Linear(1, 1), lambda p: SGD(p, lr=0.1))
        run.prepare(nn.Sequential(nn.Linear(1, 1), act), lambda p: SGD(p, lr=lr))
        return run

    saved = make(0.1, nn.Tanh()).state.state_dict()
    with pytest.raises(rankup.RankupError) as caught:
        make(0.2, nn.ReLU()).state.load_state_dict(saved)
    assert caught.value.message == (
        "the settings have changed: lr of optimizer 2: 0.1 when saved, 0.2 now; "
        "1 of model 2: Tanh() when saved, ReLU() now"
    )


@pytest.mark.parametrize("kind", ["step", "plateau", "cosine"])
def test_a_state_that_the_script_loads_itself_is_no_change_of_settings(kind: str, tmp_path: Path):
    """Its learning rate is what the schedule had made of it."""
    settings = {"schedule": kind, "lr": 0.02}
    whole = train(str(tmp_path / "whole"), settings, 0, None)
    saved = train(str(tmp_path / "own"), settings, 4, None)["own"]
    resumed = train(str(tmp_path / "own"), settings | {"own": saved}, 6, None)
    assert "error" not in resumed
    assert resumed["rates"] == whole["rates"][4:6]
    again = train(str(tmp_path / "own"), settings, 0, None)  # without its own checkpoint: nothing has changed
    assert "error" not in again
    assert again["rates"] == whole["rates"][6:]


def test_a_state_that_the_script_loads_itself_hides_no_edit(tmp_path: Path):
    saved = train(str(tmp_path), {"lr": 0.02}, 4, None)["own"]
    edited = train(str(tmp_path), {"lr": 0.5, "own": saved}, 0, None)
    assert edited["error"][:2] == ("settings-changed", "lr of the optimizer: 0.02 when saved, 0.5 now")


def test_a_rate_that_is_set_between_prepare_and_the_loop_is_a_setting(tmp_path: Path):
    train(str(tmp_path), {"after": 0.02}, 4, None)
    edited = train(str(tmp_path), {"after": 0.5}, 0, None)
    assert edited["error"][:2] == ("settings-changed", "lr of the optimizer: 0.02 when saved, 0.5 now")


def test_a_state_that_an_lr_finder_puts_back_hides_no_change(tmp_path: Path):
    train(str(tmp_path), {"lr": 0.02}, 4, None)
    edited = train(str(tmp_path), {"lr": 0.01, "own": {}}, 0, None)
    assert edited["error"][:2] == ("settings-changed", "lr of the optimizer: 0.02 when saved, 0.01 now")
