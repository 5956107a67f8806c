"""Sparse gradients: trained under ddp as by one process, and an error that says so where they cannot be."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import rankup
from programs.program import whole
from ranks import run_ranks
from rankup.errors import RankupError
from rankup.strategies.base import TORCH


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 4, sparse=True)
        self.head = nn.Linear(4, 3)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(self.words(words).mean(1))
        return output


class Factors(nn.Module):
    """Matrix factorisation with a bias for each user: the factors need the gradient that the bias gets."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(6, 3, sparse=True)
        self.items = nn.Embedding(5, 3, sparse=True)
        self.bias = nn.Embedding(6, 1, sparse=True)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        dot: torch.Tensor = (self.users(users) * self.items(items)).sum(1)
        return dot + self.bias(users).squeeze(1)


def factorised() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    users, items = (torch.randint(0, n, (20,), generator=generator) for n in (6, 5))
    run = rankup.init(precision="fp64")
    model = Factors()
    model, opt, data = run.prepare(
        model,
        lambda p: torch.optim.SparseAdam(p, lr=0.1),
        rankup.ResidentData(users, items, (users + items).double()),
        global_batch=6,
    )
    model.users.weight.requires_grad_(False)
    for epoch in run.epochs(3, data):
        model.users.weight.requires_grad_(epoch.index > 0)  # DDP's reducer is another one from then on
        for u, i, rating in epoch:
            run.backward(F.mse_loss(model(u, i), rating))
            run.step(opt)
    return [whole(parameter) for parameter in model.parameters()]


def trained(strategy: str) -> tuple[str, torch.Tensor]:
    words = torch.randint(0, 10, (20, 5), generator=torch.Generator().manual_seed(3))
    run = rankup.init(
        precision="fp64",
        strategy="auto" if strategy == "any-world" else strategy,
        exact="any-world" if strategy == "any-world" else "same-world",
    )
    model = Sparse()
    try:
        model, opt, data = run.prepare(
            model,
            lambda p: torch.optim.SGD(p, lr=0.1),
            rankup.ResidentData(words, words[:, 0] % 3),
            global_batch=6,
        )
        for x, y in run.steps(data, epochs=2):
            run.backward(F.cross_entropy(model(x), y))
            run.step(opt)
    except RankupError as error:
        return error.code, torch.zeros(1)
    return "", whole(model.words.weight)


def test_ddp_trains_what_one_process_trains():
    ((_, expected),) = run_ranks(trained, 1, "auto")
    for code, found in run_ranks(trained, 3, "ddp"):
        assert code == ""
        assert torch.allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.repeated
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_gradient_that_other_layers_still_need_is_not_divided_in_place(ranks: int):
    (expected,) = run_ranks(factorised, 1)
    for found in run_ranks(factorised, ranks):
        for theirs, ours in zip(expected, found, strict=True):
            assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("strategy", "error"),
    [
        pytest.param(
            "fsdp",
            "not-with-fsdp",
            marks=pytest.mark.skipif(TORCH < (2, 8), reason="fsdp on CPUs needs torch 2.8"),
        ),
        ("any-world", "not-any-world"),
    ],
)
def test_where_they_cannot_be_it_is_an_error_of_rankup(strategy: str, error: str):
    assert {code for code, _ in run_ranks(trained, 2, strategy)} == {error}
