"""What a user hears of wrong arguments, of a loss that is NaN, and of snapshots that go nowhere."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: rankup.init(timeout=15), "timeout must be timedelta, got int"),  # type: ignore[arg-type]
        (lambda: rankup.init(seed="1"), "seed must be int, got str"),  # type: ignore[arg-type]
        (lambda: rankup.init(seed=True), "seed must be int, got bool"),
        (lambda: rankup.init(snapshots="10m"), "snapshots must be Snapshots or None, got str"),  # type: ignore[arg-type]
        (lambda: rankup.Snapshots(every=10), "every must be str, got int"),  # type: ignore[arg-type]
        (lambda: rankup.Snapshots(keep=2), "keep must be Retention, got int"),  # type: ignore[arg-type]
        (
            lambda: rankup.init().prepare(nn.Linear(1, 1), None, global_batch="8"),
            "global_batch must be int or None",
        ),
        (
            lambda: rankup.init().prepare(nn.Linear(1, 1), None, accumulate=2.0),
            "accumulate must be int, got float",
        ),
    ],
)
def test_an_argument_of_another_type_is_one_error_with_the_right_form(make: Any, said: str):
    with pytest.raises(rankup.RankupError, match="bad-argument") as caught:
        make()
    assert said in caught.value.message and caught.value.hint.startswith("for example ")


def trained(how: str) -> list[str]:
    run = rankup.init(seed=1)
    data = rankup.ResidentData(torch.ones(22, 1))
    model, opt, feed = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=5
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for x in run.steps(feed, epochs=1):
            bad = run.global_step == 2 and run.world.rank == 1 and "nothing" not in how
            loss = model(x).mean() * (float("nan") if bad or run.batch.samples == 0 else 1.0)
            if "backward" in how:
                run.backward(loss)
            else:
                run.meter.add(loss=loss)
                loss.backward()
            opt.step()
            opt.zero_grad()
    return [str(one.message) for one in caught if "NaN" in str(one.message)]


@pytest.mark.repeated
@pytest.mark.parametrize(("how", "what"), [("backward", "the loss"), ("meter", "loss of run.meter")])
def test_a_loss_that_is_nan_is_named_once_with_its_step_and_rank(how: str, what: str):
    (first,), (second,) = run_ranks(trained, 2, how)
    assert second.startswith(f"{what} is NaN at step 3 on rank 1")
    assert first.startswith(f"{what} is NaN at step 4 on rank 0")  # the weights are, by then
    # A rank without samples computes on others, which count nothing.
    assert run_ranks(trained, 4, f"nothing {how}") == [[]] * 4


def saying(run: Any, do: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        do()
    said = [one for one in caught if "nothing is saved" in str(one.message)]
    assert all(Path(one.filename) == Path(__file__) for one in said), (
        "the script's line, and not one of rankup's"
    )
    return [str(one.message) for one in said]


def loop(run: Any) -> None:
    model, opt, feed = run.prepare(
        nn.Linear(1, 1),
        lambda p: torch.optim.SGD(p, lr=0.1),
        rankup.ResidentData(torch.ones(4, 1)),
        global_batch=2,
    )
    for x in run.steps(feed, epochs=1):
        model(x).mean().backward()
        opt.step()
        opt.zero_grad()
        if run.global_step == 0:
            run.save()


def test_snapshots_that_were_asked_for_and_have_no_directory_are_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("RANKUP_RUN_DIR", raising=False)
    for snapshots in (None, rankup.Snapshots(every="1 epochs")):  # run.save() asks as well
        run = rankup.init(snapshots=snapshots)
        (said,) = saying(run, lambda run=run: loop(run))
        assert "there is no run directory" in said and "rankup run" in said
    quiet = rankup.init(snapshots=rankup.Snapshots(directory=tmp_path))
    assert saying(quiet, lambda: loop(quiet)) == []
