"""Which configurations a study has, and in which order they run; mistakes are found before any of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankup.errors import RankupError
from rankup.scale.plan import (
    JOB_KEYS,
    MOST_CONFIGURATIONS,
    TRAINING_KEYS,
    Trial,
    fill_in,
    parse_grid,
    placeholders_in,
    points,
    trials,
)

KEYS = [*JOB_KEYS, *TRAINING_KEYS]
WORDS = st.text("abcdefgh0123456789.-", min_size=1, max_size=6).filter(lambda word: not word.isdecimal())
COUNTS = st.integers(1, 10_000)
TEXT_KEYS = ("launcher", "strategy", "precision", "device", "exact")


@st.composite
def grids(draw) -> dict[str, tuple[str | int, ...]]:
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True))
    values = {key: WORDS if key in TEXT_KEYS else COUNTS for key in keys}
    return {k: tuple(draw(st.lists(v, min_size=1, max_size=3, unique=True))) for k, v in values.items()}


@given(grids())
def test_a_grid_is_read_as_it_is_written(grid):
    assert parse_grid([f"{key}={','.join(map(str, values))}" for key, values in grid.items()]) == grid


@given(grids(), st.integers(1, 4), st.integers())
def test_every_configuration_runs_equally_often_after_its_warm_up(grid, repeats, seed):
    found = points(grid)
    assert len(set(found)) == len(found)
    order = trials(found, repeats, seed=seed)
    assert [trial.point for trial in order[: len(found)]] == found  # warm-ups
    assert [
        trial.point for trial in order[len(found) : 2 * len(found)]
    ] == found  # round 1, for the predictions
    rounds = [[t.point for t in order if t.repeat == number] for number in range(repeats + 1)]
    assert all(sorted(map(str, one)) == sorted(map(str, found)) for one in rounds)
    assert [t.repeat for t in order] == sorted(t.repeat for t in order)
    assert trials(found, repeats, seed=seed) == order


def test_later_rounds_are_in_random_orders_of_their_own():
    found = points({"nproc": tuple(range(1, 9))})
    order = trials(found, 4)
    rounds = [tuple(t.point for t in order if t.repeat == number) for number in (1, 2, 3, 4)]
    assert len(set(rounds)) == 4


@given(st.text(max_size=30))
def test_any_text_is_a_grid_or_one_error(text):
    codes = []
    try:
        assert all(parse_grid([text]).values())
    except RankupError as error:
        codes.append(error.code)
    assert codes in ([], ["bad-grid"])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "empty"),
        (["nproc"], "is not KEY=VALUE"),
        (["nproc="], "is not KEY=VALUE"),
        (["nproc=1,,2"], "is not KEY=VALUE"),
        (["nproc=,"], "is not KEY=VALUE"),
        (["=1"], "unknown key ''"),
        (["nprocs=1"], "did you mean 'nproc'?"),
        (["nproc=1,x"], "whole numbers of at least 1, got 'x'"),
        (["nproc=0"], "got '0'"),
        (["nproc=-2"], "got '-2'"),
        (["nproc=²"], "got '²'"),
        (["nproc=1_0"], "got '1_0'"),
        (["nproc=1,2,1"], "nproc=1 is given twice"),
        (["nproc=1,01"], "nproc=1 is given twice"),
        (["nproc=1", "nproc=2"], "nproc is given twice"),
        (["nproc=" + ",".join(map(str, range(1, MOST_CONFIGURATIONS + 2)))], "at most 500"),
        (["processes=1,2"], "unknown key"),
    ],
)
def test_a_malformed_grid_is_an_error_that_names_the_entry(words, named):
    with pytest.raises(RankupError) as caught:
        parse_grid(words)
    assert caught.value.code == "bad-grid"
    assert named in caught.value.message


def test_a_scripts_own_keys_are_those_that_its_arguments_name():
    command = ["train.py", "--width={width}", "--size", "{hidden_size}", "--n", "{processes}", "{}", "{1}"]
    names = placeholders_in(command)
    assert names == ["width", "hidden_size"]
    grid = parse_grid(["width=8,16", "hidden_size=a", "nodes=2", "nproc=4"], placeholders=names)
    trial = Trial(points(grid)[1], 1)
    assert fill_in(command, trial) == (*("train.py", "--width=16", "--size", "a", "--n", "8", "{}", "{1}"),)


@pytest.mark.parametrize(
    ("asked", "processes"),
    [
        ({}, 1),
        ({"nproc": 2}, 2),
        ({"nodes": 3, "nproc": 2}, 6),
        ({"gpus": 4}, 4),
        ({"gpus": 4, "nproc": 2}, 2),
    ],
)
def test_processes_are_counted_over_all_nodes(asked, processes):
    assert Trial(tuple(asked.items()), 1).processes == processes


@pytest.mark.parametrize("repeats", [0, -1])
def test_no_repeats_are_an_error(repeats):
    with pytest.raises(RankupError, match="--repeats must be at least 1") as caught:
        trials([(("nproc", 1),)], repeats)
    assert caught.value.code == "bad-repeats"
