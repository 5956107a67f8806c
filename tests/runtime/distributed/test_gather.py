"""``run.gather``: losses that compare the samples of a global batch, against plain loops of one process (no rankup)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import rankup
from ranks import run_ranks

SAMPLES, BATCH, EPOCHS = 23, 7, 2  # 23 = 3 × 7 + 2: on 3 and 4 ranks some are empty in an epoch's last step


class TwoTowers(nn.Module):
    """(n, 4) → two embeddings (n, 3) of each sample, and a learned temperature, which belongs to no sample."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
        self.second = nn.Linear(4, 3)
        self.temperature = nn.Parameter(torch.zeros(1))
        self.double()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return F.normalize(self.first(x)), F.normalize(self.second(x.flip(1))), self.temperature.exp()


def dataset() -> torch.Tensor:
    return torch.linspace(-2, 2, SAMPLES * 4, dtype=torch.float64).sin().reshape(SAMPLES, 4) * 3


def clip_loss(a: Any, b: Any, all_a: Any, all_b: Any, scale: Any, rows: torch.Tensor) -> torch.Tensor:
    """The mean over the anchors ``a`` and ``b``, each against all."""
    return F.cross_entropy(scale * a @ all_b.T, rows) + F.cross_entropy(scale * b @ all_a.T, rows)


def simclr_loss(a: torch.Tensor, b: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    both = torch.cat([a, b])
    similar = (scale * both @ both.T).fill_diagonal_(-torch.inf)
    return F.cross_entropy(similar, torch.arange(len(both)).roll(len(a)))


def plain(kind: str) -> list[torch.Tensor]:
    x, net = dataset(), TwoTowers()
    opt = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    for _ in range(EPOCHS):
        for batch in x.split(BATCH):
            a, b, scale = net(batch)
            rows = torch.arange(len(a))
            loss = clip_loss(a, b, a, b, scale, rows) if kind == "clip" else simclr_loss(a, b, scale)
            loss.backward()
            opt.step()
            opt.zero_grad()
    return [p.detach() for p in net.parameters()]


def trained(kind: str, strategy: str) -> tuple[list[torch.Tensor], list[int]]:
    run = rankup.init(seed=3, precision="fp64", strategy=strategy)
    model, opt, data = run.prepare(
        TwoTowers(),
        lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9),
        rankup.ResidentData(dataset()),
        global_batch=BATCH,
        shuffle=False,
    )
    counts = []
    for x in run.steps(data, epochs=EPOCHS):
        a, b, scale = model(x)
        (all_a, rows), all_b = run.gather(a, rows=True), run.gather(b)
        if kind == "clip":
            run.backward(clip_loss(a, b, all_a, all_b, scale, rows))
        else:
            run.backward(simclr_loss(all_a, all_b, scale), reduction="global")
        opt.step()
        opt.zero_grad()
        counts.append(run.batch.samples)
    tensors = run._context.strategy.tensors(run._context.models[0]).values()
    return [p.full_tensor() if hasattr(p, "full_tensor") else p.detach() for p in tensors], counts


def both(strategy: str) -> dict[str, tuple[list[torch.Tensor], list[int]]]:
    return {kind: trained(kind, strategy) for kind in ("clip", "simclr")}


def in_order(net: nn.Module, weights: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    return dict(zip([name for name, _ in net.named_parameters()], weights, strict=True))


@pytest.mark.slow
def test_contrastive_losses_train_the_model_of_one_process_also_with_uneven_and_empty_shares():
    expected = {kind: in_order(TwoTowers(), plain(kind)) for kind in ("clip", "simclr")}
    names = list(TwoTowers().state_dict())
    for world, strategy in ((1, "none"), (2, "ddp"), (3, "fsdp"), (4, "ddp")):
        results = run_ranks(both, world, strategy)
        assert world < 3 or 0 in results[-1]["clip"][1]
        for rank in results:
            for kind, (weights, _) in rank.items():
                for name, weight in zip(names, weights, strict=True):
                    assert torch.allclose(weight, expected[kind][name], rtol=0, atol=1e-12), (
                        kind,
                        world,
                        name,
                    )


def misused(how: str) -> str:
    options: dict[str, Any] = {"accumulate": 2} if how == "gather-in-parts" else {}
    run = rankup.init(seed=3, exact="any-world" if how == "any-world" else "same-world", precision="fp64")
    data = rankup.ResidentData(dataset())
    model, opt, feed = run.prepare(
        TwoTowers(), lambda p: torch.optim.SGD(p, lr=0.5), data, global_batch=BATCH, **options
    )
    try:
        if how == "gather-in-evaluation":
            for x in run.batches(data):
                run.gather(x)
        if how == "gather-outside-loop":
            run.gather(model(dataset())[0])
        for x in run.steps(feed, epochs=1):
            a, b, scale = model(x)
            if how == "gather-rows":
                run.gather(torch.cat([a, b]))
            if how == "gather-shapes":
                run.gather(a[:, : 1 + run.world.rank])
            if how == "global-without-gather":
                run.backward(simclr_loss(a, b, scale), reduction="global")
            loss = simclr_loss(run.gather(a), run.gather(b), scale)
            loss.backward()
            opt.step()
    except rankup.RankupError as error:
        return error.code
    return ""


def gathered_elsewhere() -> tuple[list[float], list[int], int]:
    """Behind the loops, and without gradients in one."""
    run = rankup.init(seed=3)
    data = rankup.ResidentData(torch.arange(9.0)[:, None])
    model, opt, feed = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=8, shuffle=False
    )
    seen = torch.cat(list(run.batches(data, global_batch=4)))
    everything = run.gather(seen)
    rows = 0
    for x in run.steps(feed, epochs=1):
        with torch.no_grad():
            rows += len(run.gather(model(x)))
        model(x).mean().backward()  # which knows nothing of the others' rows
        opt.step()
    ranks, mine = run.gather(torch.tensor([run.world.rank]), rows=True)
    assert mine.tolist() == [run.world.rank]
    return everything.flatten().tolist(), ranks.tolist(), rows


def each_misuse(cases: list[str]) -> list[str]:
    return [misused(case) for case in cases]


def test_a_gather_that_cannot_be_right_is_an_error_that_says_so():
    cases = [
        "plain-backward",
        "gather-rows",
        "gather-in-parts",
        "gather-in-evaluation",
        "gather-outside-loop",
        "global-without-gather",
        "any-world",
    ]
    for world in (1, 2):
        more = ["gather-shapes"] if world == 2 else []
        for codes in run_ranks(each_misuse, world, cases + more):
            assert codes == [*cases[:-1], "gather-in-parts", *more]


def test_without_gradients_it_gathers_anywhere():
    for everything, ranks, rows in run_ranks(gathered_elsewhere, 2):
        assert sorted(everything) == [float(i) for i in range(9)]
        assert (ranks, rows) == ([0, 1], 9)
