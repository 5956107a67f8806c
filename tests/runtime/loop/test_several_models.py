"""One optimizer over several models, against a plain loop of one process (no rankup)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import rankup
from ranks import run_ranks
from rankup.strategies.state import whole_weights

SAMPLES, BATCH, EPOCHS = 23, 7, 2  # 23 = 3 × 7 + 2: on 3 ranks one is empty in an epoch's last step


def models() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh()), nn.Linear(6, 4)


def dataset() -> torch.Tensor:
    return torch.linspace(-2, 2, SAMPLES * 4, dtype=torch.float64).sin().reshape(SAMPLES, 4)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.05)


def plain() -> dict[str, torch.Tensor]:
    both = nn.ModuleList(models()).double()
    opt = adam(both.parameters())
    for _ in range(EPOCHS):
        for x in dataset().split(BATCH):
            F.mse_loss(both[1](both[0](x)), x).backward()
            opt.step()
            opt.zero_grad()
    return {name: weight.detach() for name, weight in both.named_parameters()}


def trained(
    strategy: str, exact: str, form: str, folder: Path | None = None, until: int = 10**6
) -> tuple[str, dict[str, torch.Tensor]]:
    snapshots = rankup.Snapshots(every="2 steps" if folder else "off", directory=folder, asynchronous=False)
    run = rankup.init(seed=3, precision="fp64", strategy=strategy, exact=exact, snapshots=snapshots)
    first, second = models()
    given: Any = {"list": [first, second], "tuple": (first, second), "dict": {"in": first, "out": second}}[
        form
    ]
    source: Any = adam([*first.parameters(), *second.parameters()]) if form == "tuple" else adam
    prepared, opt, feed = run.prepare(
        given, source, rankup.ResidentData(dataset()), global_batch=BATCH, shuffle=False
    )
    encoder, decoder = prepared.values() if form == "dict" else prepared
    for number, x in enumerate(run.steps(feed, epochs=EPOCHS)):
        if number + 1 == until:
            break
        run.backward(F.mse_loss(decoder(encoder(x)), x))
        run.step(opt)
    return type(prepared).__name__, whole_weights(run._context.strategy, run._context.models[0])


def _each(cases: list[tuple[Any, ...]]) -> list[tuple[str, dict[str, torch.Tensor]]]:
    return [trained(*case) for case in cases]


@pytest.mark.slow
def test_they_train_as_in_one_process_under_every_strategy_and_resume(tmp_path: Path):
    expected = plain()
    for world, strategies in ((1, ["none"]), (2, ["fsdp", "auto"]), (3, ["ddp"])):
        for name in strategies:
            exact = "any-world" if name == "auto" else "same-world"
            folder = tmp_path / f"{name}-{world}"
            whole = [(name, exact, "list"), (name, exact, "dict")]
            whole += [] if name == "fsdp" else [(name, exact, "tuple")]
            results = run_ranks(_each, world, [*whole, (name, exact, "list", folder, 6)])[0]
            resumed = run_ranks(_each, world, [(name, exact, "list", folder)])[0][0][1]
            assert [kind for kind, _ in results] == [form for _, _, form in whole] + ["list"]
            for kind, weights in results[:-1]:
                for ours, theirs in zip(weights.values(), expected.values(), strict=True):
                    assert torch.allclose(ours, theirs, rtol=0, atol=1e-12), (name, world, kind)
            assert list(results[0][1]) == list(expected)
            assert next(iter(results[1][1])) == "in.0.weight"
            assert all(torch.equal(resumed[key], results[0][1][key]) for key in expected)


def refused() -> list[str]:
    run = rankup.init()
    first, second = models()
    tied = nn.Linear(6, 4)
    tied.weight = second.weight
    messages = []
    for given, source in (
        (first, adam([*first.parameters(), *second.parameters()])),
        ([], adam),
        ([first, "second"], adam),
        ([second, tied], adam),
    ):
        try:
            run.prepare(given, source)
            messages.append("")
        except rankup.RankupError as error:
            messages.append(f"{error.code}: {error.hint}")
    return messages


def test_what_cannot_be_prepared_together_is_an_error_and_names_the_cure():
    for world in (1, 2):
        foreign, none, text, shared = run_ranks(refused, world)[0]
        assert foreign.startswith("foreign-parameter") and "run.prepare([encoder, decoder]" in foreign
        assert "a parameter alone (weights of losses): model.register_parameter(" in foreign
        assert none.startswith("not-a-model") and text.startswith("not-a-model")
        assert shared.startswith("shared-between-models" if world == 2 else "")
