"""Epochs, steps, kept state, evaluation, streams: what a loop relies on, on one rank and on two."""

from __future__ import annotations

import random
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import rankup
from ranks import run_ranks

BOTH = pytest.mark.parametrize("world_size", [1, 2])


def prepared(run: rankup.Run, dataset, **options):
    net = nn.Sequential(nn.Linear(1, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    model, opt, feed = run.prepare(net, lambda p: torch.optim.Adam(p, lr=0.05), dataset, **options)
    return net, model, opt, feed


def step(model, opt, x) -> float:
    loss = (model(x) - 1).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


def column(count: int) -> torch.Tensor:
    return torch.arange(float(count)).reshape(count, 1) / count


# ------------------------------------------------------------------ keep, epochs


def interrupted_training(stop_at: int | None) -> tuple[list[float], list[int], float, int]:
    """Three epochs of five steps with dropout and a kept schedule; stopped at a step and gone on with, or not."""
    losses: list[float] = []
    after: list[int] = []
    state = None
    for _attempt in range(2):
        run = rankup.init(seed=3)
        net, model, opt, _ = prepared(run, rankup.ResidentData(column(19)), global_batch=4)
        schedule = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.5)
        run.register(schedule=schedule)
        if state is not None:
            run.state.load_state_dict(state)
        stopped = False
        for epoch in run.epochs(3):
            for x in epoch:
                losses.append(step(model, opt, x))
                if state is None and stop_at is not None and len(losses) == stop_at:
                    state = run.state.state_dict()
                    stopped = True
                    break
            if stopped:
                break
            schedule.step()
            after.append(epoch.index)
        if not stopped:
            break
    return losses, after, opt.param_groups[0]["lr"], len(losses)


def saved_behind_the_loop() -> tuple[list[int], float]:
    """A state taken last thing behind the inner loop, and gone on from in a second run."""
    state, after = None, []
    for _attempt in range(2):
        run = rankup.init(seed=3)
        _, model, opt, feed = prepared(run, rankup.ResidentData(column(8)), global_batch=4)
        schedule = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.5)
        run.register(schedule=schedule)
        if state is not None:
            run.state.load_state_dict(state)
        for epoch in run.epochs(2):
            for x in epoch:
                step(model, opt, x)
            schedule.step()
            after.append(epoch.index)
            if state is None:
                state = run.state.state_dict()
                break
    return after, opt.param_groups[0]["lr"]


@BOTH
def test_a_state_saved_behind_the_inner_loop_does_not_run_that_code_again(world_size):
    for after, rate in run_ranks(saved_behind_the_loop, world_size):
        assert after == [0, 1]
        assert rate == pytest.approx(0.05 / 4)


def test_a_state_of_other_data_or_another_cut_is_refused_before_anything_changes():
    run = rankup.init(seed=3)
    prepared(run, rankup.ResidentData(column(8)), global_batch=4)
    state = run.state.state_dict()
    for length, batch, what in (
        (8, 2, "global_batch of the data: 4 when saved, 2 now"),
        (9, 4, "length of the data: 8 when saved, 9 now"),
    ):
        other = rankup.init(seed=3)
        net, *_ = prepared(other, rankup.ResidentData(column(length)), global_batch=batch)
        before = [p.clone() for p in net.parameters()]
        with pytest.raises(rankup.RankupError, match=what):
            other.state.load_state_dict(state)
        assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    with pytest.raises(rankup.RankupError, match="1 models, this run 0"):
        rankup.init(seed=3).state.load_state_dict(state)


def test_two_data_sets_are_trained_on_one_after_the_other_each_from_its_beginning():
    run = rankup.init()
    _, model, opt, first = prepared(run, rankup.ResidentData(column(8)), global_batch=4)
    *_, second = prepared(run, rankup.ResidentData(column(6)), global_batch=3)
    assert [len(list(run.steps(feed, epochs=2))) for feed in (first, second)] == [4, 4]


def test_a_loop_over_what_was_not_prepared_is_an_error():
    run = rankup.init()
    with pytest.raises(rankup.RankupError, match="the data that prepare returned"):
        next(run.steps(rankup.ResidentData(column(4)), epochs=1))


@pytest.mark.repeated
@BOTH
@pytest.mark.parametrize("stop_at", [1, 5, 7])
def test_training_goes_on_exactly_from_a_state_with_what_was_kept(world_size, stop_at):
    for whole, resumed in zip(
        run_ranks(interrupted_training, world_size, None),
        run_ranks(interrupted_training, world_size, stop_at),
        strict=True,
    ):
        assert resumed == whole  # losses bit for bit, what follows an epoch exactly once, the schedule's rate
        assert whole[1] == [0, 1, 2]
        assert whole[3] == 15


def test_register_refuses_what_has_no_state_and_a_name_taken_twice():
    run = rankup.init()
    with pytest.raises(rankup.RankupError) as refused:
        run.register(thing=object())
    assert refused.value.code == "not-stateful"
    run.register(net=nn.Linear(1, 1))
    with pytest.raises(rankup.RankupError, match="taken"):
        run.register(net=nn.Linear(1, 1))


def test_a_state_of_another_seed_is_refused():
    state = rankup.init(seed=1).state.state_dict()
    with pytest.raises(rankup.RankupError, match="seed 1, this run has 2"):
        rankup.init(seed=2).state.load_state_dict(state)


# ------------------------------------------------------------------- evaluation


def evaluated(count: int) -> tuple[float, int, float]:
    run = rankup.init()
    data = rankup.ResidentData(torch.arange(float(count)))
    mine = [x for batch in run.batches(data, global_batch=7) for x in batch.tolist()]
    return run.sum(sum(mine)), run.sum(len(mine)), run.mean(sum(mine) / len(mine) if mine else 0.0, len(mine))


@BOTH
@pytest.mark.parametrize("count", [1, 20, 360])
def test_an_evaluation_counts_each_sample_once(world_size, count):
    for total, samples, mean in run_ranks(evaluated, world_size, count):
        assert samples == count
        assert total == count * (count - 1) / 2
        assert mean == pytest.approx((count - 1) / 2)


def counted_in_the_loops_body() -> list[int]:
    run = rankup.init()
    _, model, opt, feed = prepared(run, rankup.ResidentData(column(5)), global_batch=4)
    counts = []
    for x in run.steps(feed, epochs=1):  # the second step leaves rank 1 with nothing
        step(model, opt, x)
        counts.append(run.sum(sum(len(b) for b in run.batches(rankup.ResidentData(column(360))))))
    return counts


@BOTH
def test_an_evaluation_in_the_middle_of_an_epoch_counts_everything_on_every_rank(world_size):
    assert run_ranks(counted_in_the_loops_body, world_size) == [[360, 360]] * world_size


def normed_in_mid_epoch() -> tuple[list[float], list[float], int]:
    """BatchNorm's statistics as an evaluation in the loop's body sees them, by a model called under DDP."""
    run = rankup.init()
    norm = nn.BatchNorm1d(1, momentum=1.0)
    model, opt, feed = run.prepare(
        norm,
        lambda p: torch.optim.SGD(p, lr=0.0),
        rankup.ResidentData(column(8) * 8),
        global_batch=8,
        shuffle=False,
    )
    for x in run.steps(feed, epochs=1):
        model(x).sum().backward()
        model.eval()
        # One batch for rank 0, none for rank 1: a collective in forward would hang.
        seen = [
            norm.running_mean.item() for b in run.batches(rankup.ResidentData(column(1))) if len(model(b))
        ]
        return norm.running_mean.tolist(), seen, run.sum(len(seen))
    raise AssertionError


def test_statistics_are_averaged_before_an_evaluation_in_the_middle_of_an_epoch():
    one, two = run_ranks(normed_in_mid_epoch, 2)
    assert one[0] == two[0] == [pytest.approx(3.5)]
    assert (one[1], two[1], one[2]) == ([pytest.approx(3.5)], [], 1)


def normed_over_a_tail() -> list[int]:
    run = rankup.init()
    model, opt, feed = run.prepare(
        nn.BatchNorm1d(1),
        lambda p: torch.optim.SGD(p, lr=0.1),
        rankup.ResidentData(column(18)),
        global_batch=16,
        drop_last=False,
    )
    held = []
    for x in run.steps(feed, epochs=1):
        held.append(run.batch.samples)
        if held[-1] != 1:  # one sample is too few for BatchNorm on any number of processes
            model(x).sum().backward()
        else:
            model.eval()(x).sum().backward()
            model.train()
    return held


def test_batchnorm_takes_a_dummy_batch():
    assert run_ranks(normed_over_a_tail, 4) == [[4, 1], [4, 1], [4, 0], [4, 0]]


def running_mean_at_evaluation() -> tuple[list[float], list[float]]:
    run = rankup.init()
    net = nn.BatchNorm1d(1, momentum=1.0, affine=False)
    anchor = nn.Linear(1, 1)
    model, opt, feed = run.prepare(
        nn.Sequential(net, anchor),
        lambda p: torch.optim.SGD(p, lr=0.0),
        rankup.ResidentData(column(9) * 9),  # 9 = 2 × 4 + 1: at the end one rank runs empty
        global_batch=4,
        shuffle=False,
        drop_last=False,
    )
    for epoch in run.epochs(1):
        for x in epoch:
            model(x).sum().backward() if len(x) > 1 else model.eval()(x).sum().backward()
        model.eval()
        for _ in run.batches(rankup.ResidentData(column(3)), global_batch=2):
            pass
    return net.running_mean.tolist(), net.running_var.tolist()


def test_batch_statistics_are_averaged_over_ranks_before_an_evaluation():
    one, two = run_ranks(running_mean_at_evaluation, 2)
    assert one == two
    assert one[0] == [pytest.approx((4.5 + 6.5) / 2)]  # the second batch: 4,5 on rank 0 and 6,7 on rank 1


# ---------------------------------------------------------------------- streams


def forked(workers: int) -> dict:
    """Loader workers that are forked, as on Linux: in these ranks they would each import torch."""
    return {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}


class Count(IterableDataset):
    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self):
        return iter(torch.arange(float(self.length)).reshape(-1, 1).unbind())


def streamed(length: int, workers: int) -> dict:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run = rankup.init(seed=1)
        net = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(net.weight)
        model, opt, feed = run.prepare(
            net,
            lambda p: torch.optim.SGD(p, lr=1.0),
            Count(length),
            global_batch=4,
            **forked(workers),
        )
        seen, weights = [], []
        for x in run.steps(feed, epochs=2):
            opt.zero_grad()
            model(x).mean().backward()
            seen += x.flatten().tolist() if run.batch.samples else []
            weights.append(net.weight.grad.item())
            opt.step()
    return {"seen": seen, "gradients": weights, "said": [str(w.message) for w in said]}


@pytest.mark.repeated
@BOTH
@pytest.mark.parametrize(("length", "workers"), [(11, 0), (9, 2)])
def test_a_stream_is_seen_once_over_all_ranks_with_gradients_weighed_by_count(world_size, length, workers):
    ranks = run_ranks(streamed, world_size, length, workers)
    assert sorted(sum((r["seen"] for r in ranks), [])) == sorted([*range(length)] * 2)
    assert all(r["gradients"] == ranks[0]["gradients"] for r in ranks)
    # A mean over the global batch, whatever each rank held: the steps' means times their counts add up.
    if workers == 0:
        counts = [4, 4, 3] * 2
        assert sum(g * c for g, c in zip(ranks[0]["gradients"], counts, strict=True)) == pytest.approx(
            2 * sum(range(length))
        )
    assert any("no order to keep" in text for text in ranks[0]["said"])


# ------------------------------------------------------------------ map-style data


class Crops(Dataset):
    """Draws from torch's, Python's and NumPy's generators for each sample."""

    def __len__(self) -> int:
        return 13

    def __getitem__(self, i: int):
        import numpy as np

        return torch.tensor([float(i)]), torch.rand(1), random.random(), float(np.random.rand())


class Batched(TensorDataset):
    calls: list

    def __getitems__(self, indices):
        self.calls.append(len(indices))
        return [self[i] for i in indices]


def drawn(workers: int, dataset) -> list[tuple[float, ...]]:
    run = rankup.init(seed=2)
    _, model, opt, feed = prepared(run, dataset, global_batch=5, **forked(workers))
    rows = []
    for epoch in run.epochs(2):
        for x, *draws in epoch:
            step(model, opt, x.float())
            if run.batch.samples:
                rows += [
                    (epoch.index, *values)
                    for values in zip(x[:, 0].tolist(), *(d.flatten().tolist() for d in draws), strict=True)
                ]
    return rows


@pytest.mark.slow
def test_a_samples_random_numbers_depend_on_neither_ranks_nor_workers():
    reference = sorted(run_ranks(drawn, 1, 0, Crops())[0])
    assert len({row[2:] for row in reference}) == 26  # fresh ones for each sample in each epoch
    for world_size, workers in ((1, 2), (2, 0), (2, 1)):
        assert sorted(sum(run_ranks(drawn, world_size, workers, Crops()), [])) == reference


def generator_after_loading(dataset) -> bool:
    run = rankup.init(seed=2)
    _, model, opt, feed = prepared(run, dataset, global_batch=5, num_workers=0)
    before = torch.get_rng_state()
    for _ in run.steps(feed, epochs=2):
        pass
    return torch.equal(before, torch.get_rng_state())


class Words(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3,), float(index))


def masked(samples: list[torch.Tensor]) -> torch.Tensor:
    batch = torch.stack(samples)
    return batch * (torch.rand(batch.shape) > 0.5)


def masked_batches(workers: int, state: dict | None, until: int) -> tuple[list, dict]:
    """The batches behind ``state`` and what the model would draw behind them, up to batch ``until``; the state."""
    run = rankup.init(seed=3)
    _, _, feed = run.prepare(
        nn.Linear(3, 1), None, Words(), global_batch=4, collate_fn=masked, **forked(workers)
    )
    if state is not None:
        run.state.load_state_dict(state)
    seen: list = []
    for x in run.steps(feed, epochs=2):
        seen += [x.tolist(), torch.rand(2).tolist()]
        if len(seen) == 2 * until:
            return seen, run.state.state_dict()
    return seen, {}


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_collate_function_draws_is_the_same_after_a_resume(workers):
    ((whole, _),) = run_ranks(masked_batches, 1, workers, None, 99)
    ((first, state),) = run_ranks(masked_batches, 1, workers, None, 2)
    ((rest, _),) = run_ranks(masked_batches, 1, workers, state, 99)
    assert [*first, *rest] == whole
    assert len({str(batch) for batch in whole}) == len(whole)


def test_loading_does_not_touch_the_global_generator():
    assert run_ranks(generator_after_loading, 1, TensorDataset(column(13))) == [True]
    assert run_ranks(generator_after_loading, 1, Crops()) == [True]


class Collated(TensorDataset):
    """Gives a whole batch at once, collated already: a tensor, or a tuple of several."""

    def __getitems__(self, indices):
        columns = tuple(column[indices] for column in self.tensors)
        return columns if len(columns) > 1 else columns[0]


class Noisy(Collated):
    def __getitems__(self, indices):
        return super().__getitems__(indices) + torch.rand(1)


def collated_batches(columns: int) -> list[tuple[int, ...]]:
    run = rankup.init()
    data = Collated(*[column(10)] * columns)
    *_, feed = prepared(run, data, global_batch=4, collate_fn=lambda batch: batch)
    return [tuple((x if columns == 1 else x[0]).shape) for x in run.steps(feed, epochs=1)]


@pytest.mark.parametrize("columns", [1, 2])
def test_a_data_set_may_hand_out_whole_batches(columns: int):
    assert run_ranks(collated_batches, 1, columns)[0] == [(4, 1), (4, 1), (2, 1)]


def test_random_numbers_in_whole_batches_are_an_error():
    run = rankup.init()
    *_, feed = prepared(run, Noisy(column(10)), global_batch=4, collate_fn=lambda batch: batch)
    with pytest.raises(rankup.RankupError, match="whole-batches"):
        next(iter(run.steps(feed, epochs=1)))


def losses_with_dropout(draws: bool) -> list[float]:
    run = rankup.init(seed=2)

    class Plain(Dataset):
        def __len__(self) -> int:
            return 13

        def __getitem__(self, i: int):
            if draws:
                torch.rand(3)
            return torch.tensor([float(i)])

    _, model, opt, feed = prepared(run, Plain(), global_batch=5)
    return [step(model, opt, x) for x in run.steps(feed, epochs=2)]


def test_a_data_set_that_draws_does_not_move_the_models_dropout():
    assert run_ranks(losses_with_dropout, 1, True) == run_ranks(losses_with_dropout, 1, False)


def fetched_in_batches() -> list[int]:
    dataset = Batched(column(10))
    dataset.calls = []
    run = rankup.init()
    _, model, opt, feed = prepared(run, dataset, global_batch=4, sample_rng=False)
    for (x,) in run.steps(feed, epochs=1):
        step(model, opt, x)
    return dataset.calls


def test_a_data_set_with_getitems_is_asked_once_per_batch():
    assert run_ranks(fetched_in_batches, 1)[0] == [4, 4, 2]


@pytest.mark.parametrize("name", ["batch_size", "in_order", "generator"])
def test_loader_arguments_that_would_undo_the_sharding_are_refused(name):
    run = rankup.init()
    options = {"global_batch": 2, name: 1}
    with pytest.raises(rankup.RankupError, match=name):
        run.prepare(nn.Linear(1, 1), torch.optim.SGD, TensorDataset(column(4)), **options)


def test_a_data_loader_in_place_of_a_data_set_is_refused():
    run = rankup.init()
    loader = torch.utils.data.DataLoader(TensorDataset(column(4)))
    with pytest.raises(rankup.RankupError, match="not a DataLoader"):
        run.prepare(nn.Linear(1, 1), torch.optim.SGD, loader, global_batch=2)


def test_one_process_opens_no_process_group():
    run = rankup.init()
    model, *_ = prepared(run, rankup.ResidentData(column(4)), global_batch=2)[1:]
    assert not torch.distributed.is_initialized()
    assert type(model) is nn.Sequential
