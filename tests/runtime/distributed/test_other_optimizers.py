"""Parameters that a script trains beside those of the run: each rank would train its own, in silence."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import rankup
from programs.program import perceptron, points
from ranks import run_ranks
from rankup.errors import RankupError
from rankup.strategies.versions import TORCH


class Weighed(nn.Module):
    """A loss with a learned weight."""

    def __init__(self) -> None:
        super().__init__()
        self.log_variance = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, loss: torch.Tensor) -> torch.Tensor:
        return (torch.exp(-self.log_variance) * loss + self.log_variance).sum()


def trained(how: str) -> tuple[str, str]:
    """(the code of the error, what was said on stderr)."""
    said = io.StringIO()
    run = rankup.init(precision="fp64")
    model, opt, data = run.prepare(
        perceptron(), lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(*points()), global_batch=6
    )
    criterion = Weighed()
    own: Any = torch.optim.SGD(criterion.parameters(), lr=0.1)
    if how == "registered":
        run.register(criterion=criterion)
    with contextlib.redirect_stderr(said):
        try:
            for epoch in run.epochs(2):
                for x, y in epoch:
                    criterion(F.mse_loss(model(x), y)).backward()
                    if how == "averaged":
                        for parameter in criterion.parameters():
                            parameter.grad = run.mean(parameter.grad)
                    opt.step()
                    if how != "on rank 0" or run.world.is_main:
                        own.step()
                    own.zero_grad()
                    opt.zero_grad()
                    if how == "in each step":
                        criterion = Weighed()
                        own = torch.optim.SGD(criterion.parameters(), lr=0.1)
        except RankupError as error:
            return error.code, said.getvalue()
    return "", said.getvalue()


def test_a_registered_module_that_each_rank_trains_alone_is_an_error_after_the_epoch():
    """Also without a directory, where nothing is ever saved."""
    assert {code for code, _ in run_ranks(trained, 2, "registered")} == {"ranks-differ"}


def test_an_optimizer_beside_the_run_whose_parameters_differ_is_a_warning_that_names_prepare():
    first, *others = run_ranks(trained, 3, "alone")
    assert first[0] == ""
    assert first[1].count("SGD (own) trains parameters that run.prepare did not get") == 1
    assert "run.prepare([model, criterion]" in first[1]
    assert not any(said for _, said in others)


@pytest.mark.parametrize("how", ["averaged", "on rank 0", "in each step"])
def test_parameters_that_are_the_same_or_one_rank_s_or_of_one_step_are_no_warning(how: str):
    for code, said in run_ranks(trained, 2, how):
        assert (code, "run.prepare did not get" in said) == ("", False)


def kept_later() -> tuple[str, str]:
    run = rankup.init(precision="fp64", strategy="fsdp")
    model, opt, data = run.prepare(
        perceptron(), lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(*points()), global_batch=6
    )
    own = torch.optim.Adam(model[2].parameters(), lr=0.1)
    run.register(own=own)
    try:
        for x, y in run.steps(data, epochs=1):
            F.mse_loss(model(x), y).backward()
            opt.step()
            own.step()
            opt.zero_grad()
    except RankupError as error:
        return error.code, error.hint
    return "", ""


@pytest.mark.skipif(TORCH < (2, 8), reason="fsdp on CPUs needs torch 2.8")
def test_a_registered_optimizer_that_comes_to_hold_shards_is_named_as_such():
    """Its state was empty when the loop began."""
    for code, hint in run_ranks(kept_later, 2):
        assert code == "sharded-registered"
        assert "run.prepare(model, lambda p: …) once more" in hint
