"""The first difference of two trainings, found in traces."""

from __future__ import annotations

import json
from pathlib import Path

from verify_records import attempt, steady, step

from rankup.verify.first_difference import (
    INPUTS,
    LOSS,
    RANDOM,
    compared,
    first_difference,
    other_end,
    over_ranks,
    same_samples,
    unsteady,
)
from rankup.verify.trace_reader import AttemptTrace, read_attempt


def test_equal_steps_of_all_attempts_are_no_difference_and_are_all_counted():
    attempts = [steady(1, 4), steady(3, 6)]
    assert first_difference(steady(), attempts) is None
    assert compared(steady(), attempts) == 8


def test_the_first_step_that_differs_is_named_with_all_that_differs_then():
    other = attempt(
        step(3),
        step(4, loss=["0x1p0"], state={"model/w": "else", "metrics/m": "none"}),
        step(5, batch="else"),
        resumed_at=2,
    )
    found = first_difference(steady(), [steady(1, 3), other])
    assert found is not None
    assert (found.attempt, found.resumed_at, found.step, found.rank) == (2, 2, 4, 0)
    assert found.names == (LOSS, "model/w", "optimizer/w/exp_avg")
    assert not found.inputs_differ


def test_another_batch_comes_first_since_all_else_follows_from_it():
    found = first_difference(steady(), [attempt(step(1, batch="else", loss=[]))])
    assert found is not None
    assert found.first == INPUTS and found.inputs_differ


def test_what_is_to_be_ignored_is_no_difference():
    other = steady(untracked={"Stopwatch": "1"})
    assert (
        first_difference(
            steady(untracked={"Stopwatch": "2"}), [other], ignore=frozenset({"untracked/Stopwatch"})
        )
        is None
    )


def test_what_stands_beside_the_training_and_is_never_twice_the_same_is_unsteady():
    clocks = [
        attempt(
            step(1, state={"model/w": value, "registered/clock": value}, untracked={"Stopwatch": value}),
            end=step(1, state={"metrics/seconds": value}),
        )
        for value in "ab"
    ]
    assert unsteady(*clocks) == {"registered/clock", "untracked/Stopwatch", "metrics/seconds"}
    found = first_difference(clocks[0], [clocks[1]], ignore=unsteady(*clocks))
    assert found is not None and found.names == ("model/w",)


def test_steps_that_the_reference_did_not_train_are_not_compared():
    assert first_difference(steady(1, 4), [attempt(step(4), step(5, batch="else"))]) is None


def test_what_the_code_behind_the_last_step_left_is_compared():
    end, other = step(6), step(6, state={"model/w": "else"})
    reference = attempt(*(step(n) for n in range(1, 7)), end=end)
    found = first_difference(reference, [attempt(step(6), end=other)])
    assert found is not None
    assert found.at_end and found.first == "model/w"


def test_samples_are_compared_over_all_ranks_whatever_their_number():
    reference = attempt(step(1, rows=["a", "b", "c"]))
    two = AttemptTrace(Path("trace"), {}, {1: {1: step(1, rows=["c"]), 0: step(1, rows=["a", "b"])}}, {})
    assert same_samples(reference, two)
    two.steps[1][1] = step(1, rows=["d"])
    assert not same_samples(reference, two)


def test_a_trace_that_was_cut_by_a_kill_is_read_to_its_last_whole_line(tmp_path: Path):
    lines = [
        {"kind": "begin", "step": 2, "world_size": 2},
        {"kind": "step", "step": 3},
        {"kind": "step", "step": 4},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "rank-0.jsonl").write_text(text)
    (tmp_path / "rank-1.jsonl").write_text(text[:-5])
    found = read_attempt(tmp_path)
    assert found is not None
    assert (found.resumed_at, found.last, sorted(found.steps[4])) == (2, 3, [0])


def test_an_attempt_that_was_killed_before_it_began_has_no_trace(tmp_path: Path):
    assert read_attempt(tmp_path) is None


def test_over_ranks_losses_stand_in_the_order_of_the_shards_and_clocks_are_left_out():
    two = attempt(step(1, loss=["a", "b"], state={"model/w": "w", "registered/clock": "1"}))
    two.begin[0]["world_size"] = 2
    two.steps[1][1] = step(1, loss=["c", "d"])
    one = attempt(step(1, loss=["a", "b", "c", "d"], state={"model/w": "w", "registered/clock": "2"}))
    assert first_difference(over_ranks(one), [over_ranks(two)]) is None
    two.steps[1][1]["loss"] = ["d", "c"]
    found = first_difference(over_ranks(one), [over_ranks(two)])
    assert found is not None and found.names == (LOSS,)


def test_a_step_that_not_all_ranks_have_traced_is_none():
    torn = attempt(step(1))
    torn.begin[0]["world_size"] = 2
    assert over_ranks(torn).steps == {}


def test_what_the_script_leaves_after_its_loop_is_compared():
    reference = attempt(*(step(n) for n in range(1, 7)), end=step(6), exit=step(6, state={"model/w": "mean"}))
    other = attempt(step(6), end=step(6), exit=step(6, state={"model/w": "else"}))
    found = first_difference(reference, [other])
    assert found is not None
    assert found.at_end and found.names == ("model/w",)


def test_generators_are_compared_last():
    found = first_difference(steady(), [attempt(step(2, random="else"))])
    assert found is not None and found.names == (RANDOM,)


def test_more_steps_than_the_reference_has_are_another_end_and_so_are_fewer():
    reference = attempt(*(step(n) for n in range(1, 7)), exit=step(6))
    assert other_end(reference, [attempt(step(1), step(2)), attempt(step(6), exit=step(6))]) is None
    assert other_end(reference, [attempt(step(6), step(7)), attempt(step(7), exit=step(7))]) == (1, 7)
    assert other_end(reference, [attempt(step(4), step(5), exit=step(5))]) == (1, 5)
    assert other_end(reference, [attempt(step(6), exit=step(7))]) == (1, 7)  # a break counts its step


def test_a_resume_in_a_second_training_of_the_process_is_found_behind_the_end_of_the_first(tmp_path: Path):
    lines = [
        {"kind": "begin", "step": 6, "world_size": 1},
        {"kind": "end", "step": 6},
        {"kind": "begin", "step": 8, "world_size": 1, "at": [[1, 0]]},
        {"kind": "step", "step": 9},
        {"kind": "behind", "step": 9, "evaluated": 2},
        {"kind": "exit", "step": 9},
    ]
    (tmp_path / "rank-0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "frozen").write_text("behind")
    found = read_attempt(tmp_path)
    assert found is not None
    assert (found.resumed_at, found.resumed_epoch, found.ended, found.frozen) == (8, 1, True, "behind")
    assert [record["step"] for record in found.behind] == [9]
