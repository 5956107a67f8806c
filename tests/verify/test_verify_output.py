"""What a training prints: the numbers of its last lines, and that something was lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankup.verify.files import LAST_LINES, last_lines, lost_lines, other_numbers

FIRST = ("epoch 1: 0.5", "epoch 2: 0.25", "took 12.1 s", "accuracy 0.75")
AGAIN = ("epoch 1: 0.5", "epoch 2: 0.25", "took 12.3 s", "accuracy 0.75")


def test_a_resumed_training_prints_the_last_of_the_lines():
    assert other_numbers(FIRST, AGAIN, ("resumed", "epoch 2: 0.25", "took 3 s", "accuracy 0.75")) is None
    assert other_numbers(FIRST, AGAIN, ()) is None


@pytest.mark.parametrize("seen", ["accuracy 0.8", "accuracy nan", "accuracy 7.5e-1"])
def test_another_number_in_the_same_words_is_a_difference(seen: str):
    assert other_numbers(FIRST, AGAIN, (seen,)) == ("accuracy 0.75", seen)


def test_a_line_that_is_never_twice_the_same_is_left_out():
    assert other_numbers(FIRST, AGAIN, ("took 99 s", "accuracy 0.75")) is None


def test_lines_of_other_words_end_the_comparison():
    assert (
        other_numbers(FIRST, AGAIN, ("epoch 1: 0.7", "resumed at step 4", "took 1 s", "accuracy 0.75"))
        is None
    )


def test_the_last_lines_are_those_of_rank_0(tmp_path: Path):
    assert last_lines(tmp_path) == ()
    (tmp_path / "rank-0.out").write_text("".join(f"line {n}\n\n" for n in range(99)))
    (tmp_path / "rank-1.out").write_text("other\n")
    lines = last_lines(tmp_path)
    assert len(lines) == LAST_LINES and lines[-1] == "line 98"


def test_what_rankup_says_about_lost_state_is_found_on_any_rank(tmp_path: Path):
    (tmp_path / "rank-0.err").write_text("I lost my keys\nwarning: this is slow\n")
    assert lost_lines(tmp_path) == ()
    (tmp_path / "rank-1.err").write_text("x\nwarning: this resume has lost n\nno [state-lost]\n")
    assert lost_lines(tmp_path) == ("warning: this resume has lost n", "no [state-lost]")
