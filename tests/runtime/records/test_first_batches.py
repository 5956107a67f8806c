"""The shape of the inputs and the script's own autocast, as the first training calls of a model tell them."""

from __future__ import annotations

import contextlib

import pytest
import torch

from rankup.runtime.records.first_batches import CALLS, FirstBatches


def called(*shapes: tuple[int, ...], autocast: bool = False, local_batch: int = 0, training: bool = True):
    model = torch.nn.Identity().train(training)
    watching = FirstBatches([model], "cpu", local_batch)
    with torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext():
        for shape in shapes:
            model(torch.zeros(shape))
    return watching, model


def test_inputs_are_told_without_their_batch():
    watching, _ = called((8, 3, 4, 4), (8, 3, 4, 4), (5, 3, 4, 4))
    assert watching.facts == {"inputs": "float32 3×4×4", "autocast": "off"}


def test_a_dimension_that_changes_is_not_a_fact():
    assert called((8, 17), (8, 23))[0].facts["inputs"] == "float32 ?"


def test_a_batch_that_is_not_the_first_dimension_does_not_tell_ranks_apart():
    assert called((35, 16, 4), local_batch=16)[0].facts == called((35, 8, 4), local_batch=8)[0].facts


def test_a_sample_as_long_as_the_batch_does_not_tell_ranks_apart():
    assert called((32, 32), local_batch=32)[0].facts == called((16, 32), local_batch=16)[0].facts


def test_an_autocast_that_the_script_has_entered_is_told():
    assert called((8, 3), autocast=True)[0].facts["autocast"] == "bfloat16"


@pytest.mark.parametrize("calls", [CALLS, CALLS + 2])
def test_the_hook_is_gone_after_a_few_calls(calls):
    _, model = called(*[(8, 3)] * calls)
    assert not model._forward_pre_hooks


def test_a_model_that_is_prepared_twice_is_looked_at_once():
    model = torch.nn.Identity()
    watching = FirstBatches([model, model], "cpu")
    for _ in range(CALLS + 1):
        model(torch.zeros(8, 3))
    assert watching.facts["inputs"] == "float32 3" and not model._forward_pre_hooks


def test_evaluation_tells_nothing():
    assert called((8, 3), training=False)[0].facts == {}
