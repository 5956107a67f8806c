"""linear: a toy whose loss falls to the noise, the same for everyone."""

from __future__ import annotations

import pytest
import torch

from rankup.errors import RankupError
from rankup.workloads.linear import NOISE, Linear


def test_its_best_line_is_as_good_as_the_noise_allows_and_right_everywhere():
    workload = Linear(samples="400")
    (x, y), (test_x, test_y) = (data.columns for data in workload.datasets("synthetic"))
    assert (len(x), len(test_x)) == (400, 100)
    model = workload.model()
    solved = torch.linalg.lstsq(torch.cat((x, torch.ones(400, 1)), 1), y).solution
    with torch.no_grad():
        before = workload.loss(model(test_x), test_y)
        model.weight.copy_(solved[:-1].T)
        model.bias.copy_(solved[-1])
        output = model(test_x)
    assert before > 5
    assert workload.loss(output, test_y) == pytest.approx(NOISE**2, rel=0.5)
    assert workload.correct(output, test_y) == 100


def test_every_call_makes_the_same_data():
    first, second = Linear().datasets("synthetic")[0], Linear().datasets("synthetic")[0]
    assert all(torch.equal(a, b) for a, b in zip(first.columns, second.columns, strict=True))


def test_other_data_is_refused():
    with pytest.raises(RankupError, match="makes its own data") as caught:
        Linear().datasets("digits")
    assert caught.value.code == "other-data"
