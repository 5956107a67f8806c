"""Where runs are interrupted: by chance, from a seed, and so that every kill takes place."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankup.verify.plan import KINDS, choose_kill, choose_stops, kinds


@given(st.integers(0, 99), st.integers(1, 20))
def test_every_kind_of_kill_comes_about_as_often(seed: int, kills: int):
    chosen = kinds(Random(seed), kills)
    counts = [chosen.count(kind) for kind in KINDS]
    assert sum(counts) == kills and max(counts) - min(counts) <= 1


@given(st.integers(0, 99), st.sampled_from(["step", "moment"]), st.integers(1, 9), st.integers(0, 40))
def test_a_kill_takes_no_more_than_its_share_of_the_steps_that_are_left(
    seed: int, kind: str, left: int, steps: int
):
    kill = choose_kill(Random(seed), kind, left=left, steps_left=steps, processes=3, step_s=0.1)
    word, at, rank, *seconds = kill.words.split()
    assert word == kind and 1 <= int(at) <= max(1, steps // left) and 0 <= int(rank) < 3
    assert all(0 <= float(each) <= 0.2 for each in seconds)


def test_the_same_seed_interrupts_at_the_same_points():
    first, again = (
        [choose_kill(Random(5), kind, left=2, steps_left=9, processes=2, step_s=1.0) for kind in KINDS]
        for _ in "12"
    )
    assert first == again


@given(st.integers(0, 99), st.integers(4, 30))
def test_stops_come_one_after_another_before_the_last_step(seed: int, steps: int):
    stops = choose_stops(Random(seed), steps, 4)
    assert len(set(stops)) == 3 and stops == sorted(stops)
    assert stops[0] >= 1 and stops[-1] < steps


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_is_said_in_words(kind: str):
    kill = choose_kill(Random(0), kind, left=1, steps_left=1, processes=1, step_s=0.0)
    assert kill.said and kill.words.startswith(kind)
