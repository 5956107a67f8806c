"""What a difference comes from, by the evidence of the traces alone."""

from __future__ import annotations

import pytest
from verify_records import attempt, steady, step

from rankup.core.findings import Finding
from rankup.verify.cause import of_reference, of_resume
from rankup.verify.compare import first_difference
from rankup.verify.recorded import Attempt, Record


def of_repeat(*steps: Record) -> Finding:
    other = attempt(*steps)
    difference = first_difference(steady(), [other])
    assert difference is not None
    return of_reference(steady(), other, difference)


def after_resume(other: Attempt, reference: Attempt | None = None) -> Finding:
    reference = reference or steady()
    difference = first_difference(reference, [other])
    assert difference is not None
    return of_resume(reference, other, difference)


def test_samples_that_nobody_has_seen_are_unseeded_augmentation():
    found = of_repeat(step(1), step(2, batch="else", rows=["new-0", "new-1"]))
    assert found.code == "unseeded-augmentation"
    assert "of 2 samples 2 are others, and 0 of these stand at another step" in found.why


def test_samples_of_other_steps_are_another_order():
    found = of_repeat(step(1), step(2, batch="else", rows=["row-4-0", "row-4-1"]))
    assert found.code == "other-order"


def test_the_same_samples_in_another_order_within_the_step_are_another_order():
    assert of_repeat(step(2, batch="else", rows=["row-2-1", "row-2-0"])).code == "other-order"


def test_a_batch_whose_samples_are_unknown_is_not_said_to_be_in_another_order():
    assert of_repeat(step(2, batch="else", rows=[])).code == "unseeded-augmentation"


def test_other_states_of_the_global_generators_are_a_script_that_seeds_them():
    assert of_repeat(step(1, random="else", loss=["0x1p3"])).code == "unseeded-random"


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


def test_a_difference_right_after_a_resume_with_equal_weights_is_state_not_in_the_snapshot():
    found = after_resume(attempt(step(4, loss=["0x1p9"]), resumed_at=3))
    assert found.code == "state-not-in-snapshot"
    assert (
        "it is step 1 after the resume; right after the resume all 1 tensors of the model were equal"
        in found.why
    )
    assert found.place == "at step 4 (epoch 1, step 4)"


def test_what_has_a_state_and_was_not_brought_back_is_named():
    reference = attempt(*(step(n, unkept={"AveragedModel": f"a-{n}"}) for n in range(1, 7)))
    other = attempt(
        step(4, loss=["0x1p9"], unkept={"AveragedModel": "b-4"}),
        resumed_at=3,
        begin={"unkept": {"AveragedModel": "fresh"}},
    )
    found = after_resume(other, reference)
    assert found.message.endswith(": AveragedModel")
    assert found.fix.startswith("run.register(averagedmodel=…)")


def test_an_average_that_the_training_does_not_go_by_is_found_as_well():
    reference = attempt(*(step(n, unkept={"AveragedModel": f"a-{n}"}) for n in range(1, 7)))
    other = attempt(
        step(4, unkept={"AveragedModel": "b-4"}), resumed_at=3, begin={"unkept": {"AveragedModel": "x"}}
    )
    assert after_resume(other, reference).code == "state-not-in-snapshot"


def test_weights_that_the_resume_did_not_bring_back_are_not_called_equal():
    other = attempt(step(4, loss=["0x1p9"]), resumed_at=3, begin={"state": {"model/w": "else"}})
    assert "tensors of the model were equal" not in after_resume(other).why


def test_a_difference_before_any_resume_is_laid_to_the_saving():
    assert after_resume(attempt(step(2, loss=["0x1p9"]))).code == "saving-changes-training"


def test_samples_that_change_with_a_resume_are_laid_to_the_data():
    found = after_resume(attempt(step(4, batch="else", rows=["new-0", "new-1"]), resumed_at=3))
    assert found.code == "unseeded-augmentation"
