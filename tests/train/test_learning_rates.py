"""The learning rate is what was asked for: a rule only where one is named, and it is said."""

from __future__ import annotations

import pytest
import torch

from rankup.train.learning_rate import describe_rate, learning_rate, warmup_for
from rankup.train.optimizers import optimizer_for
from rankup.train.options import TrainOptions


def asked(**options) -> TrainOptions:
    return TrainOptions("module:Thing", "thing", **options)


@pytest.mark.parametrize(("rule", "rate"), [("none", 0.1), ("linear", 0.4), ("sqrt", 0.2)])
def test_a_rule_scales_the_rate_with_the_global_batch(rule, rate):
    options = asked(lr=0.1, lr_rule=rule, base_batch=64, global_batch=256)
    assert learning_rate(options) == pytest.approx(rate)
    optimizer = optimizer_for(options)([torch.nn.Parameter(torch.zeros(1))])
    assert optimizer.param_groups[0]["lr"] == pytest.approx(rate)


def test_what_a_rule_did_is_said_and_nothing_where_there_is_none():
    said = describe_rate(asked(lr=0.1, lr_rule="linear", base_batch=64, global_batch=256, warmup=5))
    assert said == "learning rate 0.1 → 0.4 (linear, global batch 64 → 256), warm-up over 5 steps"
    assert describe_rate(asked(global_batch=512)) == ""


def test_a_warm_up_rises_in_equal_steps_to_the_whole_rate_and_stays():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.8)
    warmup = warmup_for(asked(warmup=4), optimizer)
    rates = []
    for _ in range(6):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        warmup.step()
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.8])
    assert warmup_for(asked(), optimizer) is None
