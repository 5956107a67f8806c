"""What a difference comes from, by the evidence of the traces alone."""

from __future__ import annotations

import pytest
from verify_records import attempt, steady, step

from rankup.errors import RankupError
from rankup.findings.finding import Finding
from rankup.verify.diagnosis import of_end, of_failure, of_files, of_reference, of_resume, of_untracked
from rankup.verify.first_difference import first_difference
from rankup.verify.trace_reader import AttemptTrace, Record
from rankup.verify.two_files import TwoFiles


def of_repeat(*steps: Record) -> Finding:
    other = attempt(*steps)
    difference = first_difference(steady(), [other])
    assert difference is not None
    return of_reference(steady(), other, difference)


def after_resume(other: AttemptTrace, reference: AttemptTrace | None = None) -> Finding:
    reference = reference or steady()
    difference = first_difference(reference, [other])
    assert difference is not None
    return of_resume(reference, other, difference)


def test_samples_that_nobody_has_seen_are_unseeded_augmentation():
    found = of_repeat(step(1), step(2, batch="else", rows=["new-0", "new-1"]))
    assert found.code == "unseeded-augmentation"
    assert "of 2 samples 2 differ, and 0 of these occur at another step" in found.why


def test_samples_of_other_steps_are_another_order():
    found = of_repeat(step(1), step(2, batch="else", rows=["row-4-0", "row-4-1"]))
    assert found.code == "other-order"


def test_the_same_samples_in_another_order_within_the_step_are_another_order():
    assert of_repeat(step(2, batch="else", rows=["row-2-1", "row-2-0"])).code == "other-order"


def test_a_batch_whose_samples_are_unknown_is_not_said_to_be_in_another_order():
    assert of_repeat(step(2, batch="else", rows=[])).code == "unseeded-augmentation"


def test_other_states_of_the_global_generators_are_a_script_that_seeds_them():
    assert of_repeat(step(1, random="else", loss=["0x1p3"])).code == "unseeded-random"


def test_other_weights_before_the_first_step_are_a_model_that_nobody_seeded():
    other = {"state": {"model/w": "else"}}
    first = attempt(step(1, **other), begin=other)
    difference = first_difference(steady(), [first])
    assert difference is not None
    found = of_reference(steady(), first, difference)
    assert found.code == "unseeded-model"
    assert "before the first step 1 of the model's tensors differ already: model/w" in found.why


def test_other_weights_before_a_later_loop_are_those_of_that_loop():
    """Of two trainings in one process the first is the same."""
    begins = {0: step(0), 2: step(2, state={"model/w": "else"})}
    other = attempt(step(1), step(2), step(3, state={"model/w": "else"}), starts=begins)
    reference = attempt(step(1), step(2), step(3), starts={0: step(0), 2: step(2)})
    difference = first_difference(reference, [other])
    assert difference is not None
    assert of_reference(reference, other, difference).code == "unseeded-model"


@pytest.mark.parametrize(
    ("other", "place"),
    [
        ({"loss": ["0x1p3"]}, "the forward pass"),
        ({"state": {"model/w": "else"}}, "the backward pass or the optimizer"),
    ],
)
def test_another_outcome_of_the_same_inputs_and_generators_is_not_deterministic(other, place):
    found = of_repeat(step(1, **other))
    assert found.code == "not-deterministic"
    assert place in found.why


def test_a_difference_right_after_a_resume_with_equal_weights_is_a_variable_that_is_not_saved():
    found = after_resume(attempt(step(4, loss=["0x1p9"]), resumed_at=3))
    assert found.code == "unsaved-variable"
    assert (
        "it is step 1 after the resume; right after the resume all 1 tensors of the model were equal"
        in found.why
    )
    assert found.place == "at step 4 (epoch 1, step 4)"


def test_what_has_a_state_and_was_not_brought_back_is_named():
    reference = attempt(*(step(n, untracked={"AveragedModel self.ema": f"a-{n}"}) for n in range(1, 7)))
    other = attempt(
        step(4, loss=["0x1p9"], untracked={"AveragedModel self.ema": "b-4"}),
        resumed_at=3,
        begin={"untracked": {"AveragedModel self.ema": "fresh"}},
    )
    found = after_resume(other, reference)
    assert found.message.endswith(": AveragedModel (self.ema)")
    assert found.fix.startswith("run.register(ema=self.ema)")


def test_an_average_that_the_training_does_not_go_by_is_found_as_well():
    reference = attempt(*(step(n, untracked={"AveragedModel": f"a-{n}"}) for n in range(1, 7)))
    other = attempt(
        step(4, untracked={"AveragedModel": "b-4"}), resumed_at=3, begin={"untracked": {"AveragedModel": "x"}}
    )
    assert after_resume(other, reference).code == "state-not-in-snapshot"


def test_weights_that_the_resume_did_not_bring_back_are_not_called_equal():
    other = attempt(step(4, loss=["0x1p9"]), resumed_at=3, begin={"state": {"model/w": "else"}})
    assert "tensors of the model were equal" not in after_resume(other).why


def test_a_difference_before_any_resume_is_laid_to_the_saving():
    assert after_resume(attempt(step(2, loss=["0x1p9"]))).code == "saving-changes-training"


def test_samples_that_change_with_a_resume_are_laid_to_the_data():
    found = after_resume(attempt(step(4, batch="else", rows=["new-0", "new-1"]), resumed_at=3))
    assert found.code == "data-begins-anew"


def test_plain_variables_that_begin_anew_are_named_but_no_clocks():
    kept = {"variables": {"best": "1", "bad": "2", "started": "3", "epochs": "4"}}
    reference = attempt(*(step(n, **kept) for n in range(1, 7)))
    again = attempt(*(step(n, variables={**kept["variables"], "started": "other"}) for n in range(1, 7)))
    anew = {"variables": {"best": "0", "bad": "0", "started": "0", "epochs": "4"}}
    other = attempt(step(4, loss=["0x1p9"]), resumed_at=3, begin=anew)
    difference = first_difference(reference, [other])
    assert difference is not None
    found = of_resume(reference, other, difference, again)
    assert found.code == "unsaved-variable"
    assert found.why.endswith("plain variables that start again after a resume: best, bad")
    end = attempt(step(4), step(7), resumed_at=3, begin=anew)
    assert of_end(reference, end, again).why.endswith(": best, bad")


def test_another_number_of_steps_is_laid_to_what_decides_the_end():
    found = of_end(steady(), attempt(step(7), step(8), resumed_at=6))
    assert found.code == "other-end"
    assert found.message == "the training ends after step 8 instead of 6"


def ring(**other: object) -> tuple[AttemptTrace, AttemptTrace]:
    """A training of three ranks, and one whose first step after its resume leaves other weights."""
    made = []
    for attempt_ in (steady(size=100.0), attempt(step(4, state={"model/w": "else"}, **other), resumed_at=3)):
        attempt_.begin[0]["world_size"] = 3
        made.append(attempt_)
    return made[0], made[1]


def test_last_digits_on_three_ranks_right_after_a_resume_are_the_order_of_a_sum_and_nothing_to_register():
    reference, other = ring(size=100.00001)
    found = after_resume(other, reference)
    assert found.code == "reduction-order"
    assert "register" not in found.fix


@pytest.mark.parametrize("other", [{"size": 101.0}, {"size": 100.0, "loss": ["0x1p9"]}])
def test_more_than_last_digits_or_another_loss_is_no_order_of_a_sum(other: dict[str, object]):
    reference, attempt_ = ring(**other)
    assert after_resume(attempt_, reference).code == "unsaved-variable"


def test_gradients_that_remained_at_the_save_are_accumulation_by_hand():
    reference = attempt(
        step(1), step(2), step(3, state=step(2)["state"], pending=True), *(step(n) for n in (4, 5, 6))
    )
    begin = {"state": step(2)["state"]}
    other = attempt(step(4, state={"model/w": "else"}), resumed_at=3, begin=begin)
    assert after_resume(other, reference).code == "pending-gradients"


def test_registered_state_that_a_resume_does_not_bring_back_is_named():
    other = attempt(
        step(4, loss=["0x1p9"]), resumed_at=3, begin={"state": {**step(3)["state"], "model/w": "x"}}
    )
    found = after_resume(other)
    assert found.code == "state-not-in-snapshot"
    assert "does not restore some state: model/w" in found.message


def test_data_that_is_the_same_in_each_epoch_and_another_in_each_process_is_not_called_augmentation():
    reference = attempt(*(step(n, at=[[n // 3, 1 + n % 3]], rows=[f"row-{n % 3}"]) for n in range(6)))
    other = attempt(step(1, batch="else", rows=["new"]))
    difference = first_difference(reference, [other])
    assert difference is not None
    assert of_reference(reference, other, difference).code == "unseeded-data"


def test_state_that_changes_and_is_not_registered_is_named_with_what_registers_it():
    found = of_untracked(steady(), ["StepLR schedule", "Meter"])
    assert found.message == "StepLR (schedule), Meter have state that changes and is not registered"
    assert "run.register(schedule=schedule) before the loop" in found.fix


def test_a_training_that_begins_again_after_a_kill_and_differs_has_read_what_was_left():
    killed, begun = steady(1, 2), attempt(step(1, loss=["0x1p9"]))
    difference = first_difference(steady(), [killed, begun])
    assert difference is not None
    assert of_resume(steady(), begun, difference).code == "left-by-a-killed-attempt"


def test_a_resume_that_trains_nothing_is_not_asked_for_state_that_follows_from_steps():
    reference = attempt(*(step(n) for n in range(1, 4)), exit=step(3, untracked={"Generator noise": "b"}))
    done = attempt(resumed_at=3, exit=step(3, untracked={"Generator noise": "a"}))
    assert first_difference(reference, [done]) is None
    changed = attempt(resumed_at=3, exit=step(3, state={"model/w": "else"}))
    assert first_difference(reference, [changed]) is not None


def test_other_files_are_named_with_the_variables_that_start_again():
    reference = attempt(step(1), step(2, variables={"best": "1"}), step(3))
    resumed = attempt(step(3), resumed_at=2, begin={"variables": {"best": "0"}})
    found = of_files(["/work/best.pt"], reference, resumed, None)
    assert (found.code, found.place) == ("other-files", "/work/best.pt")
    assert found.message == "the script writes another best.pt when it is killed and resumed"
    assert "plain variables that start again after a resume: best" in found.why
    two = [TwoFiles(("runs/uninterrupted/best.pt", "runs/resumed/best.pt"), "line 1 is '2' after a resume")]
    shown = of_files(["/work/best.pt"], reference, resumed, None, two)
    assert "; best.pt: line 1 is '2' after a resume" in shown.why
    assert shown.fix.endswith(". Both are kept: runs/uninterrupted/best.pt and runs/resumed/best.pt")
    assert "kept" not in found.fix


@pytest.mark.parametrize(
    ("code", "expected"), [("worker-failed", "resume-fails"), ("state-lost", "state-lost")]
)
def test_a_resume_that_fails_is_a_finding(code: str, expected: str):
    found = of_failure(
        RankupError(code, "it failed", context="rank-0.err", hint="fix it"), "killed after step 4"
    )
    assert (found.code, found.fix) == (expected, "fix it") and "it failed" in found.why
