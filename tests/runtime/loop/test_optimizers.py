"""Every optimizer of torch goes on from a snapshot bit for bit; LBFGS decides by the loss of the global batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import rankup
from ranks import run_ranks

SAMPLES, BATCH, EPOCHS = 23, 7, 2  # 23 = 3 × 7 + 2: on 3 ranks one is empty in an epoch's last step
Source = Callable[[Any], torch.optim.Optimizer]


def optimizers() -> dict[str, Source]:
    optim: Any = torch.optim
    found: dict[str, Source] = {
        "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        "Adam": lambda p: optim.Adam(p, lr=0.05, amsgrad=True),
        "AdamW": lambda p: optim.AdamW(p, lr=0.05),
        "Adamax": lambda p: optim.Adamax(p, lr=0.05),
        "Adadelta": lambda p: optim.Adadelta(p, lr=1.0),
        "Adagrad": lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.1),
        "RMSprop": lambda p: optim.RMSprop(p, lr=0.02, momentum=0.5, centered=True),
        "Rprop": lambda p: optim.Rprop(p, lr=0.02),
        "ASGD": lambda p: optim.ASGD(p, lr=0.1, t0=2),
        "RAdam": lambda p: optim.RAdam(p, lr=0.05),
        "NAdam": lambda p: optim.NAdam(p, lr=0.05),
        "Adafactor": lambda p: optim.Adafactor(p, lr=0.1),
        "SparseAdam": lambda p: optim.SparseAdam(p, lr=0.1),
        "LBFGS": lambda p: optim.LBFGS(p, lr=0.3, max_iter=3, history_size=4),
        "LBFGS, strong_wolfe": lambda p: optim.LBFGS(p, max_iter=4, line_search_fn="strong_wolfe"),
    }
    if hasattr(optim, "Muon"):
        found["Muon"] = lambda p: optim.Muon(p, lr=0.05)
    return found


def network(name: str) -> nn.Module:
    torch.manual_seed(5)
    if name == "SparseAdam":  # which takes nothing else
        return nn.Embedding(16, 1, sparse=True)
    return nn.Sequential(nn.Linear(4, 6, bias=False), nn.Tanh(), nn.Linear(6, 1, bias=False))


def dataset() -> tuple[torch.Tensor, ...]:
    x = torch.linspace(-2, 2, SAMPLES * 4, dtype=torch.float64).sin().reshape(SAMPLES, 4) * 3
    return x, (x.square().sum(1, keepdim=True) / 9).sin(), torch.arange(SAMPLES) * 5 % 16


def step_of(net: nn.Module, opt: Any, batch: Any, backward: Callable[[torch.Tensor], Any]) -> Any:
    x, y, number = batch

    def closure() -> torch.Tensor:
        opt.zero_grad()
        loss = F.mse_loss(net(number if isinstance(net, nn.Embedding) else x), y)
        backward(loss)
        return loss

    if isinstance(opt, torch.optim.LBFGS):
        return opt.step(closure)
    closure()
    return opt.step()


def plain(name: str) -> list[torch.Tensor]:
    net = network(name).double()
    opt = optimizers()[name](list(net.parameters()))
    for _ in range(EPOCHS):
        for batch in zip(*(column.split(BATCH) for column in dataset()), strict=True):
            step_of(net, opt, batch, torch.Tensor.backward)
    return [p.detach() for p in net.parameters()]


def trained(names: list[str], folder: Path | None, until: int, *, ours: bool = False) -> dict[str, Any]:
    """Weights by optimizer. ``ours``: the closure calls run.backward."""
    found = {}
    for name in names:
        snapshots = rankup.Snapshots(
            every="2 steps" if folder else "off",
            directory=folder / name if folder else None,
            asynchronous=False,
        )
        run = rankup.init(seed=3, precision="fp64", snapshots=snapshots)
        net = network(name)
        model, opt, feed = run.prepare(
            net, optimizers()[name], rankup.ResidentData(*dataset()), global_batch=BATCH, shuffle=False
        )
        backward = run.backward if ours else torch.Tensor.backward
        for number, batch in enumerate(run.steps(feed, epochs=EPOCHS)):
            if number + 1 == until:
                break
            step_of(model, opt, batch, backward)
        found[name] = [p.detach() for p in net.parameters()]
    return found


def same_bits(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, a, b))


@pytest.mark.slow
def test_every_optimizer_goes_on_from_a_snapshot_bit_for_bit(tmp_path: Path):
    names = list(optimizers())
    (whole,) = run_ranks(trained, 1, names, None, 10**6)
    run_ranks(trained, 1, names, tmp_path, 6)  # left after the fifth of 8 steps, saved after the fourth
    (resumed,) = run_ranks(trained, 1, names, tmp_path, 10**6)
    assert [name for name in names if not same_bits(whole[name], resumed[name])] == []
    assert [
        name
        for name in names
        if not all(torch.allclose(a, b, atol=1e-12) for a, b in zip(whole[name], plain(name), strict=True))
    ] == []


@pytest.mark.slow
def test_lbfgs_takes_the_same_decisions_on_all_ranks_and_after_a_resume(tmp_path: Path):
    names = ["LBFGS", "LBFGS, strong_wolfe"]
    expected = {name: plain(name) for name in names}
    for world in (2, 3):
        whole = run_ranks(_trained, world, names, None, 10**6, world == 3)
        run_ranks(_trained, world, names, tmp_path / str(world), 6, world == 3)
        for rank, resumed in zip(
            whole, run_ranks(_trained, world, names, tmp_path / str(world), 10**6, world == 3), strict=True
        ):
            for name in names:
                assert same_bits(rank[name], whole[0][name])
                assert same_bits(rank[name], resumed[name])
                assert all(
                    torch.allclose(a, b, atol=1e-9) for a, b in zip(rank[name], expected[name], strict=True)
                )


def _trained(names: list[str], folder: Path | None, until: int, ours: bool) -> dict[str, Any]:
    return trained(names, folder, until, ours=ours)


def refused() -> list[str]:
    codes = []
    for options, init in (
        ({"accumulate": 2}, {}),
        ({"clip": 1.0}, {}),
        ({}, {"strategy": "fsdp"}),
        ({}, {"exact": "any-world"}),
    ):
        run = rankup.init(**init)
        try:
            run.prepare(
                network("LBFGS"),
                optimizers()["LBFGS"],
                rankup.ResidentData(*dataset()),
                global_batch=BATCH,
                **options,
            )
            codes.append("")
        except rankup.RankupError as error:
            codes.append(error.code)
    run = rankup.init(precision="fp64")
    model, opt, feed = run.prepare(
        network("LBFGS"), optimizers()["LBFGS"], rankup.ResidentData(*dataset()), global_batch=BATCH
    )
    try:
        for x, y, _ in run.steps(feed, epochs=1):
            run.backward(F.mse_loss(model(x), y))
            run.step(opt)
    except rankup.RankupError as error:
        codes.append(error.code)
    return codes


@pytest.mark.skipif(torch.__version__ < (2, 8), reason="fsdp on CPUs is refused for an older torch")
def test_what_lbfgs_cannot_do_is_refused():
    for codes in run_ranks(refused, 2):
        assert codes == ["not-with-lbfgs"] * 4 + ["lbfgs-needs-closure"]
