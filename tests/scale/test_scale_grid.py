"""Which runs, in which order; mistakes are found before any of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankup.scale.grid import Trial, parse_process_counts, trials

from rankup.errors import RankupError


@pytest.mark.parametrize(
    ("text", "counts"), [("1,2", [1, 2]), ("4, 1,2", [1, 2, 4]), ("2,16", [2, 16]), ("01,2", [1, 2])]
)
def test_process_counts_are_sorted_so_that_the_fewest_are_the_baseline(text, counts):
    assert parse_process_counts(text) == counts


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ("1,x", "bad-process-count", "'x'"),
        ("1,,2", "bad-process-count", "''"),
        ("", "bad-process-count", "''"),
        ("0,1", "bad-process-count", "'0'"),
        ("1,-2", "bad-process-count", "'-2'"),
        ("1,auto", "bad-process-count", "'auto'"),
        ("1,²", "bad-process-count", "'²'"),
        ("1,2,1", "repeated-process-count", "1 process"),
        ("2", "nothing-to-compare", "two numbers"),
    ],
)
def test_a_malformed_list_is_an_error_that_names_the_entry_and_the_option(text, code, named):
    with pytest.raises(RankupError) as caught:
        parse_process_counts(text)
    assert caught.value.code == code
    assert named in caught.value.message
    assert caught.value.context == f"--nproc-per-node {text}"


def test_warm_ups_come_first_and_every_other_round_runs_backwards():
    assert [(t.processes, t.repeat) for t in trials([1, 2, 4], 2)] == [
        *[(1, 0), (2, 0), (4, 0)],
        *[(1, 1), (2, 1), (4, 1)],
        *[(4, 2), (2, 2), (1, 2)],
    ]


@given(st.integers(1, 8))
def test_a_steady_drift_favours_nobody_over_an_even_number_of_rounds(pairs):
    order = trials([1, 2, 3], 2 * pairs)
    places = {
        n: sum(i for i, turn in enumerate(order) if turn == Trial(n, turn.repeat) and turn.repeat)
        for n in (1, 2, 3)
    }
    assert places[1] == places[2] == places[3]


@pytest.mark.parametrize("repeats", [0, -1])
def test_no_repeats_are_an_error(repeats):
    with pytest.raises(RankupError, match="--repeats is") as caught:
        trials([1, 2], repeats)
    assert caught.value.code == "bad-repeats"
