"""Forward passes that write to their parameters: under fsdp to a gathered copy, which is not kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import rankup
from programs.program import points
from ranks import run_ranks
from rankup.errors import RankupError
from rankup.strategies.base import TORCH

pytestmark = pytest.mark.skipif(TORCH < (2, 8), reason="fsdp on CPUs needs torch 2.8")


class Bounded(nn.Linear):
    """Its weight is kept small by the forward pass, in one of the ways that are seen in programs."""

    how = ""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.how == "data":
            self.weight.data = torch.renorm(self.weight.data, 2, 0, 0.5)
        elif self.how == "in place":
            with torch.no_grad():
                self.weight.copy_(torch.renorm(self.weight, 2, 0, 0.5))
        elif self.how == "not kept":  # right: what is computed with is another tensor
            return F.linear(x, torch.renorm(self.weight, 2, 0, 0.5), self.bias)
        return super().forward(x)


class Looked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(4, 4, max_norm=0.5)
        self.head = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.embedding((x[:, 0] > 0).long()))


def trained(how: str) -> tuple[str, str]:
    run = rankup.init(precision="fp64", strategy="fsdp")
    model: nn.Module = nn.Sequential(Bounded(4, 4), nn.Tanh(), nn.Linear(4, 1))
    if how == "embedding":
        model = Looked()
    else:
        model[0].how = how  # type: ignore[index,union-attr]
    model, opt, data = run.prepare(
        model, lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(*points()), global_batch=6
    )
    try:
        for x, y in run.steps(data, epochs=2):
            run.backward(F.mse_loss(model(x), y))
            run.step(opt)
    except RankupError as error:
        return error.code, error.message
    return "", ""


@pytest.mark.parametrize(
    ("how", "name"), [("data", "0.weight"), ("in place", "0.weight"), ("embedding", "embedding.weight")]
)
def test_a_forward_that_changes_a_weight_is_an_error_that_names_it(how: str, name: str):
    for code, message in run_ranks(trained, 2, how):
        assert code == "fsdp-forward-writes"
        assert f"changes {name}," in message


@pytest.mark.repeated
@pytest.mark.parametrize("how", ["", "not kept"])
def test_other_forwards_are_none(how: str):
    assert run_ranks(trained, 2, how) == [("", "")] * 2
