"""``run.meter``: means over batches, ranks and attempts, as one process would have computed them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.errors import RankupError

SAMPLES, BATCH, EPOCHS = 23, 7, 3  # the last of 4 batches has 2 samples: fewer than 3 ranks


class Killed(Exception):
    pass


def values() -> torch.Tensor:
    return torch.linspace(-1, 2, SAMPLES, dtype=torch.float64)[:, None]


def measured(directory: str, kill_after: int) -> list[tuple[Any, Any]]:
    """The means of each epoch; a rank without a sample measures NaN, and adds nothing."""
    run = rankup.init(precision="fp64", snapshots=rankup.Snapshots(every="off", directory=directory))
    data, test = rankup.ResidentData(values()), rankup.ResidentData(values() * 2)
    net = nn.Linear(1, 1)
    model, opt, feed = run.prepare(net, lambda p: torch.optim.SGD(p, lr=0.0), data, global_batch=BATCH)
    said = []
    for epoch in run.epochs(EPOCHS, feed):
        for x in epoch:
            model(x).mean().backward()
            opt.step()
            opt.zero_grad()
            nothing = torch.tensor(math.nan)
            run.meter.add(
                loss=x.mean() if run.batch.samples else nothing,
                index=float(epoch.index),
                positive=x[:, 0] > 0,  # one value per sample
                doubled=2 * x,
            )
            big = (x > 0.5).sum()
            run.meter.add(big=x[x > 0.5].mean() if big else nothing, count=big)  # NaN of 0
            run.meter.add(total=x.sum(), reduction="sum")
            if run.global_step + 1 == kill_after:
                run.save()
                raise Killed
        trained = run.meter.means()
        again = run.meter.means()
        assert again == {}
        with pytest.raises(RankupError, match=r"no rank has added 'loss'"):
            again["loss"]
        for x in run.batches(test, global_batch=5):
            run.meter.add(loss=x.mean().item())
        tested = run.meter.means()
        said.append(((dict(trained), trained.counts), (dict(tested), tested.counts)))
    return said


def expected(epoch: int) -> tuple[Any, Any]:
    x = values()
    big = x[x > 0.5]
    mean = x.mean().item()
    means = {
        "loss": mean,
        "index": float(epoch),
        "positive": (x > 0).double().mean().item(),
        "doubled": 2 * mean,
        "big": big.mean().item(),
        "total": mean,
    }
    counts = dict.fromkeys(means, SAMPLES) | {"big": len(big)}
    return (means, counts), ({"loss": 2 * mean}, {"loss": SAMPLES})


def check(said: list[tuple[Any, Any]], epochs: range) -> None:
    assert len(said) == len(epochs)
    for (train, test), epoch in zip(said, epochs, strict=True):
        (means, counts), tested = expected(epoch)
        assert train == (pytest.approx(means, rel=1e-14), counts)
        assert test == (pytest.approx(tested[0], rel=1e-14), tested[1])


def killed(directory: str, kill_after: int) -> list[tuple[Any, Any]]:
    whole = measured(directory + "/whole", 0)
    with pytest.raises(Killed):
        measured(directory + "/cut", kill_after)
    return whole


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("world_size", "then"),
    [(3, 3), (3, 2), *(pytest.param(1, n, marks=pytest.mark.campaign) for n in (1, 3))],
)
def test_an_epoch_cut_in_two_has_the_means_of_all_its_samples(tmp_path: Path, world_size: int, then: int):
    whole = run_ranks(killed, world_size, str(tmp_path), 7)
    for said in whole:
        check(said, range(EPOCHS))
    for rank, said in enumerate(run_ranks(measured, then, str(tmp_path / "cut"), 0)):
        check(said, range(1, EPOCHS))
        if then == world_size:
            assert repr(said) == repr(whole[rank][1:])  # to the bit


@pytest.fixture
def run() -> rankup.Run:
    return rankup.init()


def test_it_is_used_outside_of_a_loop_with_a_count(run: rankup.Run):
    run.meter.add(loss=1.0, count=1)
    run.meter.add(loss=torch.tensor(4.0), count=3)
    run.meter.add(loss=math.nan, other=math.nan, count=0)
    assert run.meter.here() == {"loss": 3.25, "other": pytest.approx(math.nan, nan_ok=True)}
    means = run.meter.means(reset=False)
    assert (means["loss"], means.counts) == (3.25, {"loss": 4, "other": 0})
    assert run.meter.means()["loss"] == 3.25
    assert run.meter.means() == {}
    with pytest.raises(rankup.RankupError) as none:
        run.meter.add(loss=1.0)
    assert none.value.code == "no-count"


def weighted() -> tuple[float, float, float]:
    """The mean of a loss over weights of classes, which are no whole numbers; the weights; and the mean that a meter
    gives that goes on with the state of another one."""
    run = rankup.init()
    weights, losses = (
        torch.tensor([0.3, 1.25, 3.0], dtype=torch.float64),
        torch.linspace(0, 1, SAMPLES, dtype=torch.float64),
    )
    meter, second = rankup.Meter(run), rankup.Meter(run)
    for (rows,) in run.batches(torch.utils.data.TensorDataset(torch.arange(SAMPLES)), global_batch=BATCH):
        mine = weights[rows % 3]
        if len(rows):
            meter.add(loss=(losses[rows] * mine).sum() / mine.sum(), count=mine.sum())
    second.load_state_dict(meter.state_dict())
    means = meter.means()
    return means["loss"], means.counts["loss"], second.means()["loss"]


@pytest.mark.parametrize("world_size", [1, 3])
def test_a_count_may_be_a_weight_with_a_fraction(world_size: int):
    weights = torch.tensor([0.3, 1.25, 3.0], dtype=torch.float64)[torch.arange(SAMPLES) % 3]
    mean = (torch.linspace(0, 1, SAMPLES, dtype=torch.float64) * weights).sum() / weights.sum()
    for found in run_ranks(weighted, world_size):
        assert found == pytest.approx((mean.item(), weights.sum().item(), mean.item()), rel=1e-12)


def test_a_count_in_fp32_is_added_up_beyond_what_fp32_holds(run: rankup.Run):
    for _ in range(3):
        run.meter.add(loss=1.0, count=torch.tensor(2.0**24 + 2))
    run.meter.add(loss=1.0, count=torch.tensor(1.0))
    assert run.meter.means().counts == {"loss": 3 * (2**24 + 2) + 1}
    run.meter.add(loss=0.1, count=torch.tensor(3))
    assert run.meter.means()["loss"] == pytest.approx(0.1, rel=1e-15)


def test_a_running_mean_of_a_hundred_steps_is_not_moved_by_what_came_before(run: rankup.Run):
    for _ in range(2):
        for value in range(100):
            run.meter.add(loss=float(value), count=1)
        assert run.meter.means() == {"loss": 49.5}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (torch.ones(3), "shape (3,)"),
        (torch.ones(2, 2), "shape (2, 2)"),
        ("1", None),
        ([1], "a list"),
        (None, "NoneType"),
    ],
)
def test_what_is_no_number_is_refused(run: rankup.Run, value: Any, says: str | None):
    if says is None:
        run.meter.add(x=value, count=1)  # float("1")
        return
    with pytest.raises(rankup.RankupError) as refused:
        run.meter.add(x=value, count=2)
    assert refused.value.code == "bad-metric" and says in refused.value.message
    if isinstance(value, torch.Tensor):  # such as a hit for each node
        assert "run.meter.add(x=….mean(), count=…)" in str(refused.value.hint)


def test_training_and_test_are_not_averaged_together(run: rankup.Run):
    data = rankup.ResidentData(torch.ones(4, 1))
    model, opt, feed = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=2
    )
    tests = []
    for x in run.steps(feed, epochs=1):
        run.meter.add(loss=x.mean())
        test = rankup.Meter(run)
        for y in run.batches(data):
            test.add(loss=3 * y.mean())
            with pytest.raises(rankup.RankupError) as mixed:
                run.meter.add(loss=y.mean())
        assert mixed.value.code == "meter-mixed"
        assert "in an evaluation, while the meter holds values of the training" in mixed.value.message
        tests.append(dict(test.means()))
    assert tests == [{"loss": 3.0}] * 2
    assert run.meter.means() == {"loss": 1.0}
