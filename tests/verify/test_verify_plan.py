"""Where runs are interrupted: at random, from a seed, and so that every crossing that a training offers takes place."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verify_records import attempt, step

from rankup.verify.plan import (
    KINDS,
    QUICK_KINDS,
    Course,
    choose_kills,
    choose_stops,
    crossed,
    last_saves,
    offered,
    too_short,
)
from rankup.verify.scenario import VerifyPlan

THREE_EPOCHS = Course(30, (10, 20, 30), ((10, 2), (20, 2), (30, 2)), frozenset(range(11, 31)), 3, 0.1)
ONE_EPOCH = Course(12, (12,))


def test_one_kill_of_each_kind_that_the_training_offers():
    assert THREE_EPOCHS.kinds() == list(KINDS)
    assert ONE_EPOCH.kinds() == ["step", "behind", "save", "moment", "exit"]
    assert Course(1).kinds() == []


@given(st.integers(0, 99), st.integers(1, 12))
def test_kills_come_in_the_order_of_their_steps_and_each_kind_about_as_often(seed: int, kills: int):
    made = choose_kills(Random(seed), THREE_EPOCHS, kills)
    assert len(made) == kills
    assert [kill.step for kill in made] == sorted(kill.step for kill in made)
    counts = [sum(kill.kind == kind for kill in made) for kind in KINDS]
    assert max(counts) - min(counts) <= 1
    for kill in made:
        word, *_ = kill.interrupt.split()
        assert word == kill.kind and kill.text


@given(st.integers(0, 999), st.integers(1, 5))
def test_one_kill_falls_beside_the_saves_and_what_resumes_after_it_begins_in_a_later_epoch(
    seed: int, kills: int
):
    made = choose_kills(Random(seed), THREE_EPOCHS, kills)
    at = next(index for index, kill in enumerate(made) if kill.kind == "step")
    saved = max(step for kill in made[: at + 1] if kill.kind != "save" for step in kill.saves)
    assert 10 < saved <= made[at].step
    assert made[at].step not in made[at].saves
    assert made[at].step < THREE_EPOCHS.steps


@given(st.integers(0, 99))
def test_a_kill_behind_an_epoch_comes_after_the_save_of_its_last_step(seed: int):
    made = choose_kills(Random(seed), THREE_EPOCHS, 5)
    behind = next(kill for kill in made if kill.kind == "behind")
    assert behind.step in (10, 20)
    assert behind.step in {step for kill in made for step in kill.saves}


@given(st.integers(0, 99), st.integers(2, 40))
def test_any_training_of_two_steps_or_more_can_be_interrupted(seed: int, steps: int):
    course = Course(steps, (steps // 2, steps), later=frozenset(range(steps // 2 + 1, steps + 1)))
    kills = choose_kills(Random(seed), course, 4)
    assert all(1 <= kill.step <= steps for kill in kills)
    assert all(0 < step <= steps for kill in kills for step in kill.saves)
    assert all(0 < step < steps for step in last_saves(Random(seed), course, kills))


def test_the_saves_are_no_grid_and_the_same_seed_chooses_the_same_points():
    first, again, other = (choose_kills(Random(seed), THREE_EPOCHS, 5) for seed in (5, 5, 6))
    assert first == again != other


@given(st.integers(0, 99), st.integers(4, 30))
def test_stops_come_one_after_another_before_the_last_step(seed: int, steps: int):
    stops = choose_stops(Random(seed), steps, 4)
    assert len(set(stops)) == 3 and stops == sorted(stops)
    assert stops[0] >= 1 and stops[-1] < steps


def test_what_there_is_to_cross_follows_from_the_uninterrupted_training():
    ends = [{"step": 3, "evaluated": 2}, {"step": 6, "evaluated": 2}]
    reference = attempt(*(step(n, at=[[(n - 1) // 3, 1]]) for n in range(1, 7)), behind=ends)
    course = Course.of(reference)
    assert (course.steps, course.epoch_ends, course.evaluations) == (6, (3, 6), ((3, 2), (6, 2)))
    assert offered(course) == ["epoch", "off-grid", "behind", "evaluation", "save", "moment", "exit", "end"]
    assert not too_short(course)


@pytest.mark.parametrize("course", [ONE_EPOCH, Course(4, (3, 4), later=frozenset([4]))])
def test_a_training_without_a_later_epoch_to_resume_in_is_said_to_be_too_short(course: Course):
    assert "epoch" not in offered(course)
    assert too_short(course)


def test_what_was_crossed_is_read_from_the_traces():
    killed = attempt(step(1), step(2), step(3), frozen="step")
    resumed = attempt(step(3), step(4), resumed_at=2, begin={"at": [[1, 0]]}, exit=step(4))
    assert crossed([killed, resumed], to_the_end=True) == ["epoch", "off-grid", "end"]
    assert crossed([killed, resumed], to_the_end=False) == ["epoch", "off-grid"]
    on_the_grid = attempt(step(4), resumed_at=3, exit=step(4))
    assert crossed([killed, on_the_grid], to_the_end=True) == ["end"]
    assert crossed([killed], to_the_end=True) == []


@given(st.integers(0, 99))
def test_of_two_trainings_in_one_process_a_later_epoch_is_one_of_either(seed: int):
    later = frozenset([*range(7, 19), *range(25, 31)])
    course = Course(30, (6, 12, 18, 24, 30), later=later)
    made = choose_kills(Random(seed), course, 1)
    assert made[0].step in later and set(made[0].saves) <= later and made[0].saves


def test_a_training_that_is_stopped_early_does_not_reach_the_end_of_its_script():
    assert VerifyPlan(1).kinds == KINDS
    assert VerifyPlan(1, epoch_steps=3).kinds == QUICK_KINDS
    assert "exit" not in VerifyPlan(1, steps=9).kinds
