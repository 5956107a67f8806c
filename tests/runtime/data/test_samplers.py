"""``drop_last=``, ``sampler=`` and ``batch_sampler=``: the order that a plain loop has, on any number of ranks."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import rankup
from ranks import run_ranks
from rankup.errors import RankupError
from rankup.runtime.data.generators import Generators
from rankup.runtime.seed import derive

LENGTH = 23


class ByLength(Sampler):
    """Batches of samples of about equal length, of different sizes, in an order drawn by the epoch."""

    def __init__(self, generator: random.Random | None = None) -> None:
        self.epoch, self.generator_of_its_own = 0, generator

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self):
        batches = [[0, 1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11], [12, 13], [14, 15, 16, 17, 18, 19, 20, 21, 22]]
        (self.generator_of_its_own or random.Random(self.epoch)).shuffle(batches)
        return iter(batches[: 3 + self.epoch % 2])


class Counts(Sampler):
    """With hidden state."""

    def __init__(self) -> None:
        self.drawn = 0

    def __iter__(self):
        self.drawn += 1
        return iter([(i + self.drawn) % LENGTH for i in range(LENGTH)])


class Endless(Sampler):
    def __iter__(self):
        while True:
            yield 0


class Names(Sampler):
    def __iter__(self):
        return iter(["a", "b"])


def weighted(**options) -> WeightedRandomSampler:
    return WeightedRandomSampler(torch.arange(1.0, LENGTH + 1), 20, **options)


ORDERS = {
    "weighted": lambda: {"sampler": weighted(), "global_batch": 8},
    "weighted, its own generator": lambda: {
        "sampler": weighted(generator=torch.Generator()),
        "global_batch": 8,
    },
    "without replacement": lambda: {"sampler": RandomSampler(range(LENGTH)), "global_batch": 8},
    "subset": lambda: {"sampler": SubsetRandomSampler([3, 5, 8, 13, 21]), "global_batch": 4},
    "a list": lambda: {"sampler": [5, 4, 3, 2, 1, 0, 22], "global_batch": 4, "drop_last": True},
    "by length": lambda: {"batch_sampler": ByLength()},
    "batches of torch": lambda: {"batch_sampler": BatchSampler(RandomSampler(range(LENGTH)), 5, True)},
    "resident, weighted": lambda: {"sampler": weighted(), "global_batch": 8},
    "drop_last": lambda: {"global_batch": 8, "drop_last": True},
    "drop_last, in order": lambda: {"global_batch": 8, "drop_last": True, "shuffle": False},
}


def plain(name: str, epoch: int) -> list[list[int]]:
    """The global batches as a loop without rankup would cut them, with the seeds that the documentation names."""
    options = ORDERS[name]()
    if "sampler" not in options and "batch_sampler" not in options:
        order = torch.arange(LENGTH)
        if options.get("shuffle", True):
            generator = torch.Generator().manual_seed(derive(1, "order", epoch))
            order = torch.randperm(LENGTH, generator=generator)
        return [order[i : i + 8].tolist() for i in (0, 8)]
    sampler = options.get("sampler", options.get("batch_sampler"))
    if isinstance(getattr(sampler, "generator", None), torch.Generator):
        sampler.generator.manual_seed(derive(1, "sampler", epoch))
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)
    with Generators(derive(1, "sampler", epoch)).in_use():
        drawn = list(sampler)
    if "batch_sampler" in options:
        return drawn
    size = options["global_batch"]
    batches = [drawn[i : i + size] for i in range(0, len(drawn), size)]
    return [batch for batch in batches if len(batch) == size or not options.get("drop_last")]


def dataset(name: str = ""):
    column = torch.arange(float(LENGTH)).reshape(-1, 1)
    return rankup.ResidentData(column) if "resident" in name else TensorDataset(column)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.0)


def trained(name: str, exact: str, at: tuple[int, int] | None, workers: int = 0) -> dict:
    """By (epoch, step): the samples of this rank. ``at``: begin there. Also the gradients' means, and the state."""
    run = rankup.init(seed=1, exact=exact, precision="fp64")
    options = ORDERS[name]()
    if workers:
        options |= {"num_workers": workers, "multiprocessing_context": "fork"}
    net = nn.Linear(1, 1, bias=False)
    model, opt, data = run.prepare(net, sgd, dataset(name), **options)
    if at is not None:
        data.position.go_to(*at)
    seen: dict = {}
    lengths, gradients = [], []
    for epoch in run.epochs(3):
        lengths.append(epoch.steps)
        for batch in epoch:
            x = batch if isinstance(batch, torch.Tensor) else batch[0]
            loss = model(x).mean()
            run.backward(loss)
            if run.batch.samples:
                step = data.position.step - (1 if run.batch.last else 0)
                seen.setdefault((epoch.index, step), []).extend(x.flatten().tolist())
            if run.batch.last:
                gradients.append(net.weight.grad.item())
            run.step(opt)
    return {"seen": seen, "lengths": lengths, "gradients": gradients}


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("name", "world_size", "exact"),
    [(name, size, "same-world") for name, size in zip(ORDERS, [3, 2, 1, 3, 2, 3, 2, 3, 3, 2], strict=True)]
    + [("weighted", 3, "any-world"), ("by length", 2, "any-world")],
)
def test_the_global_batches_are_those_of_a_plain_loop(name, world_size, exact):
    ranks = run_ranks(trained, world_size, name, exact, None)
    batches = {(epoch, step): b for epoch in range(3) for step, b in enumerate(plain(name, epoch))}
    together = {at: [int(number) for rank in ranks for number in rank["seen"].get(at, [])] for at in batches}
    assert together == batches
    assert {at for rank in ranks for at in rank["seen"]} == set(batches)
    assert ranks[0]["lengths"] == [len(plain(name, epoch)) for epoch in range(3)]
    if exact == "same-world":
        means = [sum(batch) / len(batch) for batch in batches.values()]
        assert all(rank["gradients"] == pytest.approx(means, abs=1e-12) for rank in ranks)
    orders = [plain(name, epoch) for epoch in range(3)]
    assert orders[0] != orders[1] or name in ("a list", "drop_last, in order")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["by length", *(pytest.param(name, marks=pytest.mark.campaign) for name in ("weighted", "drop_last"))],
)
def test_a_resume_in_the_middle_of_an_epoch_goes_on_with_the_same_batches(name):
    whole = run_ranks(trained, 2, name, "same-world", None)
    resumed = run_ranks(trained, 2, name, "same-world", (1, 1), 2)
    for before, after in zip(whole, resumed, strict=True):
        assert after["seen"] == {at: x for at, x in before["seen"].items() if at >= (1, 1)}


class Drawn(torch.utils.data.Dataset):
    """A random number with each sample."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, random.random()


def drawn_twice(workers: int) -> list[tuple[int, float]]:
    run = rankup.init(seed=1)
    options = {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}
    _, _, data = run.prepare(
        nn.Linear(1, 1), sgd, Drawn(), sampler=[0, 0, 1, 1, 0], global_batch=2, sample_rng=True, **options
    )
    rows: list[tuple[int, float]] = []
    for index, number in run.steps(data, epochs=1):
        if run.batch.samples:
            rows += zip(index.tolist(), number.tolist(), strict=True)
    return rows


def test_a_sample_that_is_drawn_twice_has_other_random_numbers_each_time():
    (one,) = run_ranks(drawn_twice, 1, 0)
    assert [index for index, _ in one] == [0, 0, 1, 1, 0]
    assert len({number for _, number in one}) == 5
    assert sorted(sum(run_ranks(drawn_twice, 2, 2), [])) == sorted(one)


def prepared(**options) -> str:
    """The error, or what was printed."""
    run = rankup.init(seed=1)
    said: list[str] = []
    run._context.print = lambda *words: said.append(" ".join(map(str, words)))
    model = options.pop("model", nn.Linear(1, 1))
    try:
        run.prepare(model, sgd, options.pop("data", dataset()), **options)
    except RankupError as error:
        return error.code
    return "; ".join(said)


REFUSED = {
    "sampler-has-state": lambda: {"sampler": Counts(), "global_batch": 4},
    "sampler-shards": lambda: {"sampler": DistributedSampler(range(LENGTH), 2, 0), "global_batch": 4},
    "sampler-out-of-range": lambda: {"sampler": RandomSampler(range(LENGTH + 1)), "global_batch": 4},
    "sampler-endless": lambda: {"sampler": Endless(), "global_batch": 4},
    "sampler-not-numbers": lambda: {"sampler": Names(), "global_batch": 4},
    "two-orders": lambda: {"batch_sampler": ByLength(), "global_batch": 4},
    "nothing-left": lambda: {"global_batch": 24, "drop_last": True},
    "unknown-option": lambda: {"global_batch": 4, "num_worker": 2},
    "loader-option-taken": lambda: {"global_batch": 4, "batch_size": 2},
    "not-a-dataset": lambda: {"global_batch": 4, "data": iter([1, 2])},
    "stream-order": lambda: {"global_batch": 4, "drop_last": True, "data": Stream()},
}


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(LENGTH))


@pytest.mark.parametrize("code", REFUSED)
def test_what_contradicts_itself_is_one_clear_error(code):
    assert prepared(**REFUSED[code]()) == code


def differing() -> list[str]:
    rank = rankup.init().world.rank
    own = ByLength(random.Random(rank))
    weights = torch.ones(LENGTH)
    weights[0] += 100 * rank
    return [
        prepared(batch_sampler=own),
        prepared(sampler=WeightedRandomSampler(weights, LENGTH), global_batch=4),
        prepared(batch_sampler=BatchSampler(DistributedSampler(range(LENGTH)), 4, False)),
    ]


def test_samplers_that_differ_between_ranks_are_refused_on_all():
    codes = ["sampler-has-state", "sampler-differs", "sampler-shards"]
    assert run_ranks(differing, 2) == [codes, codes]


def changed(case: str) -> tuple[int, str, str]:
    """The epoch that is refused after one in which a rank has changed its sampler, and what is said."""
    run = rankup.init(seed=1)
    rank, workers = run.world.rank, {"num_workers": 1, "multiprocessing_context": "fork"}
    sampler = SubsetRandomSampler(list(range(8)))
    options = workers if case == "third look with workers" else {}
    model, opt, data = run.prepare(
        nn.Linear(1, 1), sgd, dataset(), global_batch=4, sampler=sampler, **options
    )
    at = 2 if options else 1
    if case == "resumed":
        data.position.go_to(1, 1)
        sampler.indices = list(range(rank, 8 + rank))
    begun = 0
    try:
        for epoch in run.epochs(4, data):
            begun = epoch.index
            for (x,) in epoch:
                run.backward(model(x).mean())
                run.step(opt)
            if epoch.index == at - 1:
                sampler.indices = list(range(8 + rank if case == "lengths" else 8))
                sampler.indices[0] += 10 * rank
    except RankupError as error:
        return begun, error.code, error.message
    return begun, "", ""


@pytest.mark.parametrize("case", ["samples", "lengths", "resumed", "third look with workers"])
def test_a_sampler_that_ranks_change_differently_is_refused_at_the_next_epoch(case):
    for begun, code, message in run_ranks(changed, 2, case):
        assert (begun, code) == (2 if "workers" in case else 1, "sampler-differs")
        assert (
            f"sampler (SubsetRandomSampler) gives rank 0 and rank 1 different orders of epoch {begun + 1}"
            in message
        )
        assert ("(8 and 9 samples)" in message) == (case == "lengths")


def test_a_mistyped_option_names_the_right_one():
    with pytest.raises(RankupError, match=r"do you mean num_workers="):
        rankup.init().prepare(nn.Linear(1, 1), sgd, dataset(), global_batch=4, num_worker=2)
    with pytest.raises(RankupError, match=r"do you mean global_batch="):
        next(rankup.init().batches(dataset(), globalbatch=4))
    with pytest.raises(RankupError, match=r"Subset"):
        next(rankup.init().batches(dataset(), sampler=[1, 2]))


def test_what_is_left_out_is_said_once():
    assert prepared(global_batch=8, drop_last=True) == (
        "drop_last=True: 7 of 23 samples are left out in each epoch"
    )
    assert prepared(global_batch=23, drop_last=True) == ""


# ------------------------------------------------------------------- BatchNorm


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


def along_a_line() -> nn.Module:
    return nn.Sequential(nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4))


def batchnorm() -> list[str]:
    models = {
        "one sample": {"model": normed(), "global_batch": 11},
        "more to accumulate": {"model": normed(), "global_batch": 22, "accumulate": 11},
        "left out": {"model": normed(), "global_batch": 11, "drop_last": True},
        "told to go on": {"model": normed(), "global_batch": 11, "drop_last": False},
        "in eval mode": {"model": normed().eval(), "global_batch": 11},
        "pictures": {"model": nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)), "global_batch": 11},
        "after a Conv1d": {"model": along_a_line(), "global_batch": 11},
        "enough samples": {"model": normed(), "global_batch": 8},
    }
    return [name for name, options in models.items() if prepared(**options) == "batchnorm-one-sample"]


@pytest.mark.parametrize("world_size", [1, 3])
def test_a_batchnorm_that_would_get_one_sample_is_refused_before_the_first_step(world_size):
    """23 = 2 · 11 + 1: with 11 the last step has one sample, with 8 seven."""
    refused = ["one sample", "more to accumulate"]
    assert run_ranks(batchnorm, world_size) == [refused] * world_size


def test_plain_torch_ends_at_that_step():
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        normed()(torch.ones(1, 1))


def test_no_sampler_is_asked_for_an_epoch_behind_the_last_one(tmp_path):
    run = rankup.init(snapshots=rankup.Snapshots(directory=tmp_path, every="2 steps"))
    sampler = Epochs(12)
    model, optimizer, data = run.prepare(
        torch.nn.Linear(2, 1),
        lambda p: torch.optim.SGD(p, lr=0.1),
        torch.utils.data.TensorDataset(torch.ones(12, 2)),
        global_batch=4,
        sampler=sampler,
    )
    run.register(sampler=sampler)
    for epoch in run.epochs(2, data):
        for (x,) in epoch:
            model(x).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert sampler.asked == [0, 1]


class Epochs(torch.utils.data.Sampler):
    def __init__(self, length: int) -> None:
        self.length = length
        self.asked: list[int] = []  # once each

    def set_epoch(self, epoch: int) -> None:
        if epoch not in self.asked:
            self.asked.append(epoch)

    def __len__(self) -> int:
        return self.length

    def __iter__(self):
        return iter(range(self.length))
