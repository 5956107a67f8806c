"""Calls that cannot mean what was wanted are errors at once, each with its code, and nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import IterableDataset

import rankup
from ranks import run_ranks
from rankup.errors import RankupError
from rankup.runtime.data import worker_info
from rankup.strategies.fsdp import FSDP


def data(samples: int = 8) -> rankup.ResidentData:
    return rankup.ResidentData(torch.ones(samples, 2))


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def prepared(run: Any, **options: Any) -> Any:
    return run.prepare(nn.Linear(2, 1), sgd, data(), global_batch=4, **options)


def no_parts(run: Any) -> None:
    prepared(run, accumulate=0)


def loader_arguments_without_data(run: Any) -> None:
    run.prepare(nn.Linear(2, 1), sgd, global_batch=4)


def no_batch(run: Any) -> None:
    run.prepare(nn.Linear(2, 1), sgd, data())


def two_accumulates(run: Any) -> None:
    prepared(run, accumulate=2)
    prepared(run, accumulate=4)


def columns_of_two_lengths(_: Any) -> None:
    rankup.ResidentData(torch.ones(3), torch.ones(4))


def no_columns(_: Any) -> None:
    rankup.ResidentData()


def data_of_another_run(run: Any) -> None:
    theirs = prepared(rankup.init(name="other"))[2]
    next(iter(run.steps(theirs, epochs=1)))


REFUSED: dict[str, list[Callable[[Any], None]]] = {
    "bad-accumulate": [no_parts],
    "data-of-another-run": [data_of_another_run],
    "no-dataset": [loader_arguments_without_data],
    "no-global-batch": [no_batch],
    "two-accumulates": [two_accumulates],
    "columns-differ": [columns_of_two_lengths, no_columns],
}


@pytest.mark.parametrize(
    ("code", "call"), [(code, call) for code, calls in REFUSED.items() for call in calls]
)
def test_a_call_that_contradicts_itself(code: str, call: Callable[[Any], None]):
    with pytest.raises(RankupError) as error:
        call(rankup.init())
    assert error.value.code == code


# --- any-world


def any_world_without_a_loop() -> str:
    run = rankup.init(exact="any-world")
    model, _, _ = run.prepare(nn.Linear(2, 1), sgd, data(), global_batch=4)
    try:
        run.backward(model(torch.ones(4, 2)).mean())
    except RankupError as error:
        return error.code
    return ""


def any_world_that_counts_sometimes() -> str:
    """The first virtual shard of a batch with ``count=``, the next without."""
    run = rankup.init(exact="any-world")
    model, opt, batches = run.prepare(nn.Linear(2, 1), sgd, data(), global_batch=8)
    calls = 0
    try:
        for x in run.steps(batches, epochs=1):
            loss = model(x).square().mean()
            run.backward(loss, count=len(x)) if calls % 2 == 0 else run.backward(loss)
            calls += 1
            run.step(opt)
    except RankupError as error:
        return error.code
    return ""


@pytest.mark.parametrize("world_size", [1, 2])
def test_any_world_needs_its_loop_and_equal_calls(world_size: int):
    assert set(run_ranks(any_world_without_a_loop, world_size)) == {"no-shard"}
    assert set(run_ranks(any_world_that_counts_sometimes, world_size)) == {"backward-calls-differ"}


# --- Several ranks


def wrapped_again() -> str:
    run = rankup.init()
    try:
        model, opt, batches = prepared(run)
        net = nn.parallel.DistributedDataParallel(model)
        for x in run.steps(batches, epochs=1):
            run.backward(net(x).mean())
            run.step(opt)
    except RankupError as error:
        return error.code
    return ""


def already_wrapped() -> str:
    run = rankup.init()
    try:
        run.prepare(nn.parallel.DistributedDataParallel(nn.Linear(2, 1)), sgd, data(), global_batch=4)
    except RankupError as error:
        return error.code
    return ""


def groups_of_two() -> str:
    try:
        run = rankup.init(strategy=FSDP(shard_size=2))
        prepared(run)
    except RankupError as error:
        return error.code
    return ""


def a_sharded_copy() -> str:
    run = rankup.init(strategy="fsdp")
    model, _, batches = prepared(run)
    run.register(average=nn.ParameterList(model.parameters()))
    try:
        next(iter(run.steps(batches, epochs=1)))
    except RankupError as error:
        return error.code
    return ""


def two_losses_in_a_closure() -> str:
    """They are weighed differently, so their sum is not the loss of the global batch."""
    run = rankup.init()
    model, opt, batches = run.prepare(nn.Linear(2, 1), torch.optim.LBFGS, data(), global_batch=6)
    try:
        for x in run.steps(batches, epochs=1):

            def closure(x: torch.Tensor = x) -> torch.Tensor:
                opt.zero_grad()
                loss = model(x).square().mean()
                run.backward(loss, count=4 if os.environ["RANK"] == "2" else 1)
                run.backward(model(x).abs().mean(), count=3)
                return loss

            opt.step(closure)
    except RankupError as error:
        return error.code
    return ""


class OneShard(IterableDataset[torch.Tensor]):
    """It splits itself, and has a sample for rank 0 alone."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        if os.environ["RANK"] == "0":
            yield torch.ones(2)


def a_stream_that_is_too_short() -> str:
    run = rankup.init()
    try:
        model, opt, batches = run.prepare(nn.Linear(2, 1), sgd, OneShard(), global_batch=3, sharded=True)
        for x in run.steps(batches, epochs=1):
            run.backward(model(x).mean())
            run.step(opt)
    except RankupError as error:
        return error.code
    except RuntimeError:  # gloo's: the others have left
        return "alone"
    return ""


def test_ranks_for_which_a_stream_has_nothing_say_so():
    assert run_ranks(a_stream_that_is_too_short, 3) == ["alone", "stream-too-short", "stream-too-short"]


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("code", "body"),
    [
        ("already-wrapped", already_wrapped),
        ("already-wrapped", wrapped_again),
        ("bad-shard-size", groups_of_two),
        ("sharded-registered", a_sharded_copy),
        ("closure-losses", two_losses_in_a_closure),
    ],
)
def test_on_three_ranks_all_get_the_same_error(code: str, body: Callable[[], str]):
    assert run_ranks(body, 3) == [code] * 3


def test_a_torch_that_hides_which_worker_reads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(worker_info.torch_worker, "_worker_info")
    presented = worker_info.PresentedWorker(0, 1, seed=0, dataset=None)
    with pytest.raises(RankupError) as error, worker_info.presented(presented):
        pass
    assert error.value.code == "worker-info-hidden"
