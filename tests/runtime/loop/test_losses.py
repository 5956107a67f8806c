"""Losses that are not a mean over this rank's samples, against plain loops of one process (no rankup)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import rankup
from ranks import run_ranks

SAMPLES, BATCH, EPOCHS = 23, 7, 2  # 23 = 3 × 7 + 2: on 3 and 4 ranks some are empty in an epoch's last step
PADDING = -100
CLASS_WEIGHT = torch.tensor([0.2, 3.0, 1.0], dtype=torch.float64)


def dataset() -> tuple[torch.Tensor, torch.Tensor]:
    """(23, 4) → 5 targets each, of which some samples have none, and the last two batches' first share."""
    x = torch.linspace(-2, 2, SAMPLES * 4, dtype=torch.float64).sin().reshape(SAMPLES, 4) * 3
    y = (torch.arange(SAMPLES * 5).reshape(SAMPLES, 5) * 7 // 3) % 3
    y[torch.arange(SAMPLES)[:, None] % 4 > torch.arange(5)] = PADDING
    y[0:3] = PADDING
    y[21] = PADDING
    return x, y


def network() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 15)).double()


def padded(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.reshape(-1, 3), y.reshape(-1), ignore_index=PADDING)


def weighted(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.reshape(-1, 3), y.clamp(min=0).reshape(-1), weight=CLASS_WEIGHT)


def masked(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Written by hand, as many do: NaN, gradients too, where nothing is left."""
    mask = y != PADDING
    each = F.cross_entropy(output.reshape(-1, 3), y.clamp(min=0).reshape(-1), reduction="none")
    return (each * mask.reshape(-1)).sum() / mask.sum()


def summed(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return 0.02 * output.square().sum()


LOSSES: dict[str, Any] = {
    "padded": (padded, lambda y: (y != PADDING).sum()),
    "masked": (masked, lambda y: int((y != PADDING).sum())),
    "weighted": (weighted, lambda y: CLASS_WEIGHT[y.clamp(min=0)].sum()),
    "summed": (summed, None),
}


def plain(names: list[str], *, clip: float = 0.0) -> list[torch.Tensor]:
    """The loop of one process, in the order of rankup's shuffle."""
    x, y = dataset()
    net = network()
    opt = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)
    for epoch in range(EPOCHS):
        order = order_of(epoch)
        for start in range(0, SAMPLES, BATCH):
            rows = order[start : start + BATCH]
            output = net(x[rows])
            sum(LOSSES[name][0](output, y[rows]) for name in names).backward()
            if clip:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            opt.step()
            opt.zero_grad()
    return [p.detach() for p in net.parameters()]


def order_of(epoch: int) -> torch.Tensor:
    from rankup.runtime.data.order import all_rows
    from rankup.runtime.data.sharding import Sharding

    return all_rows(Sharding(SAMPLES, BATCH, 0, 1, 3, True).order(epoch))


def trained(
    names: list[str], strategy: str, exact: str, options: dict[str, Any], *, clip: float = 0.0
) -> tuple[list[torch.Tensor], bool]:
    """The weights, and whether a share with samples had nothing to count. ``clip``: by the loop itself."""
    run = rankup.init(seed=3, precision="fp64", strategy=strategy, exact=exact)
    model, opt, data = run.prepare(
        network(),
        lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9),
        rankup.ResidentData(*dataset()),
        global_batch=BATCH,
        **options,
    )
    nothing = False
    for x, y in run.steps(data, epochs=EPOCHS):
        for name in names:
            loss, count = LOSSES[name]
            if count is None:
                run.backward(loss(model(x), y), reduction="sum")
            else:
                run.backward(loss(model(x), y), count=count(y))
                nothing |= run.batch.samples > 0 and float(count(y)) == 0
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        run.step(opt)
    tensors = run._context.strategy.tensors(run._context.models[0]).values()
    return [p.full_tensor() if hasattr(p, "full_tensor") else p.detach() for p in tensors], nothing


def each_loss(
    strategy: str, exact: str, options: dict[str, Any]
) -> dict[str, tuple[list[torch.Tensor], bool]]:
    """All of them in one process, which is cheaper than one each."""
    return {name: trained([name], strategy, exact, options) for name in LOSSES}


def difference(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    found = max((a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True))
    return float("inf") if found != found else found


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("world", "strategy", "exact", "options"),
    [
        (1, "none", "same-world", {"accumulate": 3, "clip": 0.3}),
        pytest.param(2, "ddp", "same-world", {"accumulate": 2}, marks=pytest.mark.campaign),
        pytest.param(3, "ddp", "same-world", {}, marks=pytest.mark.campaign),
        (4, "ddp", "same-world", {"accumulate": 3, "clip": 0.3}),
        (3, "fsdp", "same-world", {"accumulate": 2}),
        (2, "auto", "any-world", {}),
    ],
)
def test_the_step_is_that_of_the_mean_over_all_units(world: int, strategy: str, exact: str, options: dict):
    results = run_ranks(each_loss, world, strategy, exact, options)
    # Else this shows less than it says: on one rank a step that counts nothing is an error.
    assert world == 1 or any(rank["masked"][1] for rank in results)
    for rank in results:
        for name, (weights, _) in rank.items():
            assert difference(weights, plain([name], clip=options.get("clip", 0.0))) < 1e-12, name


def several(exact: str) -> list[tuple[list[torch.Tensor], bool]]:
    names = ["padded", "summed", "weighted"]
    return [trained(names, "auto", exact, {}), trained(names, "auto", exact, {}, clip=0.3)]


@pytest.mark.slow
def test_several_backward_calls_are_each_divided_by_their_own_count_and_may_be_clipped_by_hand():
    reference = [plain(["padded", "summed", "weighted"], clip=clip) for clip in (0.0, 0.3)]
    for exact in ("same-world", "any-world"):
        results = [rank for world in (1, 3, 4) for rank in run_ranks(several, world, exact)]
        for result in results:
            for (weights, _), (first, _), expected in zip(result, results[0], reference, strict=True):
                assert difference(weights, expected) < 1e-12
                assert exact == "same-world" or all(map(torch.equal, weights, first))  # the same bits


def misused(how: str, exact: str) -> str:
    run = rankup.init(seed=3, precision="fp64", exact=exact)
    options: dict[str, Any] = (
        {} if exact == "any-world" or how in ("bad-count", "nothing-counted") else {"accumulate": 2}
    )
    model, opt, data = run.prepare(
        network(),
        lambda p: torch.optim.SGD(p, lr=0.3),
        rankup.ResidentData(*dataset()),
        global_batch=BATCH,
        **options,
    )
    schedule = torch.optim.lr_scheduler.StepLR(opt, 3)
    arguments: dict[str, Any] = {
        "bad-count": {"count": -1.0},
        "count-and-reduction": {"count": 2, "reduction": "sum"},
        "bad-reduction": {"reduction": "average"},
        "nothing-counted": {"count": 0},
        "mixed-counts": {"count": 2},
        "global-loss-in-parts": {"reduction": "global"},
    }
    try:
        for x, y in run.steps(data, epochs=1):
            run.backward(padded(model(x), y.clamp(min=0)), **arguments.get(how, {}))
            if how == "mixed-counts":
                run.backward(summed(model(x), y))
            if how == "gradients-changed":
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            if how == "setter":
                opt.param_groups[0]["lr"] = 0.1 / (1 + run.global_step)
            run.step(opt)
            if how == "scheduler-per-micro-batch":
                schedule.step()
            if how == "own schedule":
                opt.param_groups[0]["lr"] *= 0.9
    except rankup.RankupError as error:
        return error.code
    return ""


def each_misuse(cases: list[tuple[str, str]]) -> list[str]:
    return [misused(*case) for case in cases]


@pytest.mark.slow
def test_what_cannot_be_right_is_an_error_that_says_so():
    cases = [
        ("bad-count", "same-world"),
        ("count-and-reduction", "same-world"),
        ("bad-reduction", "same-world"),
        ("nothing-counted", "same-world"),
        ("nothing-counted", "any-world"),
        ("mixed-counts", "same-world"),
        ("global-loss-in-parts", "same-world"),
        ("global-loss-in-parts", "any-world"),
        ("gradients-changed", "same-world"),
        ("scheduler-per-micro-batch", "same-world"),
        ("scheduler-per-micro-batch", "any-world"),
        ("own schedule", "any-world"),
        ("setter", "any-world"),  # which is the same in all shards of a step
        ("setter", "same-world"),
    ]
    expected = [how if " " not in how else "scheduler-per-micro-batch" for how, _ in cases[:-2]] + ["", ""]
    for codes in run_ranks(each_misuse, 2, cases):
        assert codes == expected


def noisy() -> list[list[float]]:
    """Noise on the gradients, between backward and step."""
    run = rankup.init(seed=3, precision="fp64", exact="any-world")
    net = network()
    model, opt, data = run.prepare(
        net, lambda p: torch.optim.SGD(p, lr=0.3), rankup.ResidentData(*dataset()), global_batch=BATCH
    )
    for x, y in run.steps(data, epochs=1):
        run.backward(summed(model(x), y), reduction="sum")
        for parameter in net.parameters():
            if parameter.grad is not None:
                parameter.grad += torch.randn_like(parameter)
        run.step(opt)
    return [p.tolist() for p in net.parameters()]


def test_noise_on_the_gradients_is_the_same_on_any_world():
    assert len({str(rank) for world in (1, 2, 3) for rank in run_ranks(noisy, world)}) == 1
