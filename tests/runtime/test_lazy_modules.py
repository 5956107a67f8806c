"""A lazy module has parameters without a shape until its first forward: neither an optimizer nor DDP can take them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import rankup
from rankup.errors import RankupError


def prepared(model):
    run = rankup.init()
    data = rankup.ResidentData(torch.zeros(4, 3))
    return run.prepare(model, lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=2)


def test_a_lazy_module_is_an_error_that_says_what_to_do():
    with pytest.raises(RankupError, match=r"1\.weight has no shape yet") as caught:
        prepared(nn.Sequential(nn.ReLU(), nn.LazyLinear(2)))
    assert caught.value.code == "uninitialized-parameter"
    assert "before prepare" in caught.value.hint


def test_a_lazy_module_that_was_called_once_is_prepared():
    model = nn.Sequential(nn.ReLU(), nn.LazyLinear(2))
    model(torch.zeros(2, 3))
    prepared(model)
