"""What a comparison of two runs needs to know of a training."""

from __future__ import annotations

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR

from rankup.runtime.records.facts import _rate

SCHEDULES = {
    "none": lambda opt: None,
    "warm-up": lambda opt: LambdaLR(opt, lambda step: (step + 1) / 100),
    "one cycle": lambda opt: OneCycleLR(opt, 3e-3, total_steps=13),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_learning_rate_is_the_one_that_was_set_whatever_the_schedule_begins_with(schedule: str):
    opt = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=3e-3)
    SCHEDULES[schedule](opt)
    assert _rate(opt.param_groups[0]) == 3e-3
