"""Whose word counts: a flag before the workload's default, that before the general one; and what cannot be is told."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

from rankup.cli.commands.train import train
from rankup.errors import RankupError
from rankup.train.options import DEFAULTS, TrainOptions
from rankup.train.workload import defaults_of, make_workload
from rankup.workloads import WORKLOADS

THEIRS = {"optimizer": "sgd", "lr": 0.1, "weight_decay": 5e-4, "epochs": 40}


def asked(**options: object) -> TrainOptions:
    return TrainOptions.asked("module:Class", "name", options)


def test_a_flag_comes_before_the_workloads_default_and_that_before_the_general_one():
    made = asked(lr=0.02).with_defaults(THEIRS)
    assert (made.lr, made.epochs, made.gamma) == (0.02, 40, 0.7)
    assert made.from_workload == ["epochs", "optimizer", "weight_decay"]


def test_a_flag_counts_even_where_it_says_what_is_the_general_default():
    assert asked(epochs=5).with_defaults(THEIRS).epochs == 5


def test_the_rate_of_one_optimizer_is_no_default_for_another():
    made = asked(optimizer="adam").with_defaults(THEIRS)
    assert (made.lr, made.weight_decay, made.epochs) == (1e-3, 0.0, 40)


def test_options_cross_to_the_ranks_whole():
    made = asked(lr=0.02, target_accuracy=0.9).with_defaults(THEIRS)
    assert TrainOptions.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target_accuracy": 85.0}, "--target-accuracy 85.0"),
        ({"patience": 0}, "--patience 0"),
        ({"momentum": 1.0}, "--momentum 1.0"),
        ({"weight_decay": -1.0}, "--weight-decay -1.0"),
        ({"optimizer": "adam", "nesterov": True}, "--nesterov with adam"),
        ({"optimizer": "sgd", "nesterov": True, "momentum": 0.0}, "--nesterov without momentum"),
    ],
)
def test_what_cannot_be_is_one_error_that_names_the_flag(options, words):
    with pytest.raises(RankupError, match=words) as caught:
        asked(**options).with_defaults({})
    assert caught.value.code == "bad-option"


def test_a_default_for_what_no_workload_may_choose_is_refused():
    with pytest.raises(RankupError, match="module:Class names seed") as caught:
        asked().with_defaults({"seed": 7})
    assert "weight_decay" in caught.value.hint


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_defaults_of_every_built_in_workload_can_be(name):
    made = asked().with_defaults(defaults_of(make_workload(WORKLOADS[name], {})))
    assert set(made.from_workload) <= set(DEFAULTS)


def test_the_command_shows_the_defaults_that_hold():
    shown = {name: parameter.default for name, parameter in inspect.signature(train).parameters.items()}
    held = {field.name: field.default for field in fields(TrainOptions)}
    same = [name for name in shown if name in held and name not in ("workload", "name", "settings")]
    assert {"lr", "epochs", "momentum", "patience"} <= set(same)
    assert {name: shown[name] for name in same} == {name: held[name] for name in same}


class Whole:
    """The least that a workload is."""

    def __init__(self, width: str = "3") -> None:
        self.width = int(width)

    model = datasets = loss = correct = lambda *_: None


class WithoutLoss(Whole):
    loss = None


class HalfFetching(Whole):
    def present(self, source: str) -> bool:
        return True


def test_four_methods_are_a_workload():
    assert isinstance(make_workload(f"{__name__}:Whole", {"width": "5"}), Whole)


@pytest.mark.parametrize(
    ("name", "settings", "code", "words"),
    [
        ("WithoutLoss", {}, "not-a-workload", "lacks loss"),
        ("HalfFetching", {}, "not-a-workload", "lacks home, obtain"),
        ("Whole", {"width": "wide"}, "bad-setting", "width=wide"),
        ("Whole", {"depth": "2"}, "bad-setting", "depth"),
        ("Absent", {}, "workload-not-found", "Absent"),
    ],
)
def test_what_is_no_workload_or_no_setting_is_one_error(name, settings, code, words):
    with pytest.raises(RankupError, match=words) as caught:
        make_workload(f"{__name__}:{name}", settings)
    assert caught.value.code == code
