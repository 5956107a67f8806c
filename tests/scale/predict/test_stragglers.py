"""σ of the whole model, from the repeats of a study."""

from __future__ import annotations

import pytest

from rankup.scale.predict.stragglers import step_deviation
from rankup.scale.results import Configuration, Measured, StudyResults


def study(*configurations):
    return StudyResults("train.py", "weak", configurations, {}, 3)


def ran(processes, *seconds, strategy="ddp"):
    runs = [
        Measured(repeat, each, 3200, 100, 1, processes, 1, strategy, "cpu")
        for repeat, each in enumerate(seconds, 1)
    ]
    return Configuration({"nproc": processes}, runs)


def test_three_repeats_of_the_smallest_configuration_tell_it():
    found = step_deviation(study(ran(2, 20, 30, 40), ran(1, 9, 10, 11)))
    assert found.sigma == pytest.approx(0.01)  # 1 s over 100 steps
    assert found.basis == "10 ms, from 3 repeats of 1 × 1"


def test_a_larger_configuration_is_taken_if_the_smallest_has_too_few():
    assert step_deviation(study(ran(1, 9, 10), ran(2, 9, 10, 11))).basis.endswith("3 repeats of 1 × 2")


def test_other_strategies_do_not_tell_it():
    found = step_deviation(study(ran(2, 9, 10, 11, strategy="fsdp"), ran(2, 9, 10)), "ddp")
    assert found.sigma == 0


@pytest.mark.parametrize(
    ("given", "there"), [(None, "there is one"), (study(ran(1, 9, 10), ran(2, 9)), "there are 2")]
)
def test_too_few_repeats_are_said_to_be_so(given, there):
    found = step_deviation(given)
    assert found.sigma == 0 and "it needs 3 repeats" in found.basis and there in found.basis
