"""What ``run.register`` takes: lists, numbers, arrays, generators; exact across a resume, or refused."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, defaultdict, deque
from enum import Enum
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.snapshots.layout import entries

ALL_STEPS = 10  # 2 epochs of 5


class Killed(Exception):
    pass


class Shadow:
    """An average of a model's state as users write it: batch statistics are in it, and differ between ranks."""

    def __init__(self, model: nn.Module) -> None:
        self.shadow = {name: value.detach().clone() for name, value in model.state_dict().items()}

    def update(self, model: nn.Module) -> None:
        for name, value in model.state_dict().items():
            self.shadow[name] = value * 0.5 + self.shadow[name] * 0.5 if value.is_floating_point() else value

    def state_dict(self) -> dict[str, Any]:
        return self.shadow

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.shadow = dict(state)


def all_kinds(directory: str, kill_after: int) -> list[Any]:
    """Draws, counts and collects in every step; what there is after each."""
    torch.manual_seed(0)
    data = rankup.ResidentData(torch.randn(40, 3, generator=torch.Generator().manual_seed(1)))
    run = rankup.init(snapshots=rankup.Snapshots(every="1 steps", directory=directory))
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    history: list[Any] = [("begin", None)]
    table: dict[str, Any] = {"rows": []}
    grouped: defaultdict[str, list[int]] = defaultdict(list)
    seen, words = {0}, Counter(a=1)
    window: deque[float] = deque(maxlen=3)
    average, array, scalar = torch.zeros(3, dtype=torch.float64), numpy.zeros((2, 2)), numpy.array(0)
    generator, own = torch.Generator().manual_seed(5), random.Random(6)
    pcg, twister, legacy = (
        numpy.random.default_rng(7),
        numpy.random.Generator(numpy.random.MT19937(8)),
        numpy.random.RandomState(9),
    )
    mine = [run.world.rank]
    model, opt, feed = run.prepare(net, lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=8)
    shadow = Shadow(net)
    run.register(history=history, table=table, grouped=grouped, seen=seen, words=words, window=window)
    run.register(average=average, array=array, scalar=scalar, generator=generator, own=own, pcg=pcg)
    run.register(twister=twister, legacy=legacy, shadow=shadow)
    values = run.register(best=-1.0, patience=0, last=(None, "x"), flag=False)
    run.register(mine=mine, per_rank=True)
    said: list[str] = []
    run.forget("said")
    for batch in run.steps(feed, epochs=2):
        loss = model(batch).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        shadow.update(net)
        number = run.mean(loss.item())
        assert isinstance(number, float)
        history.append({"loss": number, "t": torch.tensor(number)})
        table["rows"].append(OrderedDict(step=len(history)))
        grouped[f"k{len(history) % 2}"].append(len(history))
        seen.add(len(history))
        words.update("ab")
        window.append(number)
        average.mul_(0.9).add_(number)
        array += own.random() + pcg.random() + twister.random() + legacy.rand()
        scalar += 1
        values.best = max(values.best, torch.tensor(number, dtype=torch.float64))
        values.patience += 1
        values.last = (numpy.float64(number), "y")
        values.flag = not values.flag
        mine.append(run.world.rank * 100 + len(mine))
        drawn = torch.rand(2, generator=generator).tolist()
        kinds = (type(grouped), grouped.default_factory, type(words), window.maxlen, type(values.best))
        said.append(
            repr(
                (
                    history,
                    table,
                    dict(grouped),
                    sorted(seen),
                    words,
                    window,
                    average,
                    array.tolist(),
                    int(scalar),
                )
            )
            + repr((values, mine, drawn, kinds, [t.tolist() for t in shadow.shadow.values()]))
        )
        if len(said) == kill_after:
            run.save()
            raise Killed
    return said


def killed(directory: str) -> list[Any]:
    whole = all_kinds(directory + "/whole", 0)
    with pytest.raises(Killed):
        all_kinds(directory + "/cut", 7)
    return whole


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [2, *(pytest.param(n, marks=pytest.mark.campaign) for n in (1, 3))])
def test_every_kind_goes_on_where_it_was(tmp_path: Path, world_size: int):
    whole = run_ranks(killed, world_size, str(tmp_path))
    resumed = run_ranks(all_kinds, world_size, str(tmp_path / "cut"), 0)
    for mine, after in zip(whole, resumed, strict=True):
        assert len(set(mine)) == ALL_STEPS and len(after) == ALL_STEPS - 7
        for step in range(len(after)):
            assert after[step] == mine[7 + step], step


def one_step(directory: str, what: str) -> list[str]:
    """Ranks that disagree; the codes and messages of what ``run.save`` says."""
    run = rankup.init(snapshots=rankup.Snapshots(every="off", directory=directory))
    data = rankup.ResidentData(torch.ones(6, 1))
    model, opt, feed = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=6
    )
    rank = run.world.rank
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt)
    large = torch.zeros(100_000)
    wrapped = nn.ParameterList([large])
    things = {
        "best": 0.5 + rank, "history": [rank], "average": torch.tensor([rank]), "sched": plateau, "ema": wrapped
    }  # fmt: skip
    if what == "sched":
        plateau.step(1.0 + rank)
    if what == "ema":
        with torch.no_grad():
            wrapped[0][77_777] = float(rank == 2)
    run.register(**{what: things[what]})
    for _ in run.steps(feed, epochs=1):
        try:
            run.save()
        except rankup.RankupError as error:
            return [error.code, error.message]
        break
    return ["saved"]


DIFFERING = {
    "best": "best (run.register) differs between rank 0 and rank 1: 0.5 and 1.5",
    "history": "history (run.register) differs between rank 0 and rank 1",
    "average": "average (run.register) differs between rank 0 and rank 1",
    "sched": "sched (run.register) differs between rank 0 and rank 1",
    "ema": "ema (run.register) differs between rank 0 and rank 2",
}


def all_differing(directory: str) -> dict[str, list[str]]:
    return {what: one_step(f"{directory}/{what}", what) for what in DIFFERING}


def test_what_differs_between_ranks_is_named_and_not_saved(tmp_path: Path):
    for said in run_ranks(all_differing, 3, str(tmp_path)):
        assert said == {what: ["ranks-differ", message] for what, message in DIFFERING.items()}
    assert not [entry for what in DIFFERING for entry in entries(tmp_path / what)]


def resized(directory: str, train: bool) -> tuple[list[int], float, list[object]]:
    run = rankup.init(snapshots=rankup.Snapshots(every="off", directory=directory))
    data = rankup.ResidentData(torch.ones(6, 1))
    model, opt, feed = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=3
    )
    own = [run.world.rank]
    lines: list[object] = []
    run._context.print = lines.append  # type: ignore[method-assign, assignment]
    run.register(own=own, per_rank=True)
    values = run.register(best=1.0)
    for _ in run.steps(feed, epochs=1):
        if not train:
            break
        own.append(10 + run.world.rank)
        values.best = 7.0
        run.save()
        break
    return own, values.best, lines[:1]


def test_on_another_number_of_ranks_each_begins_its_own_anew_and_the_shared_goes_on(tmp_path: Path):
    assert run_ranks(resized, 3, str(tmp_path), True) == [([rank, 10 + rank], 7.0, []) for rank in range(3)]
    line = "another number of processes: own (per_rank) begin without a saved state"
    assert run_ranks(resized, 2, str(tmp_path), False) == [([0], 7.0, [line]), ([1], 7.0, [line])]


class Colour(Enum):
    RED = 1


@pytest.fixture
def run() -> rankup.Run:
    return rankup.init()


@pytest.mark.parametrize(
    ("thing", "says"),
    [
        (object(), "got an object; it takes a thing with state_dict"),
        (Colour.RED, "Colour; it takes"),
        (numpy.array(["a"]), "an array of numbers, not of <U1"),
        (numpy.broadcast_to(numpy.zeros(1), 3), "an array that may be written to"),
        (torch.eye(2).to_sparse(), "a plain tensor"),
        (random, "got random; it takes an object, not the class or module"),
        (random.SystemRandom(), "random.Random(seed)"),
        (Shadow, "got Shadow; it takes an object, not the class"),
        (lambda: None, "got a function"),
        ((1, [2]), "got a tuple"),
    ],
)
def test_what_no_snapshot_can_hold_is_refused_at_once(run: rankup.Run, thing: Any, says: str):
    with pytest.raises(rankup.RankupError) as refused:
        run.register(x=thing)
    assert refused.value.code == "not-stateful"
    assert refused.value.message.startswith("run.register(x=…) got ") and says in refused.value.message


def test_values_are_read_and_set_by_registered_names_alone(run: rankup.Run):
    values = run.register(best_accuracy=0.0, count=numpy.int64(3))
    values.best_accuracy = max(values.best_accuracy, torch.tensor(0.5))
    assert (values.best_accuracy, values.count) == (0.5, 3)
    assert type(values.count) is int
    with pytest.raises(rankup.RankupError) as unknown:
        values.best_acuracy = 1.0
    assert unknown.value.code == "not-registered" and unknown.value.hint == "do you mean best_accuracy?"
    with pytest.raises(rankup.RankupError) as unknown:
        print(values.epoch)
    assert "registered: best_accuracy, count" in unknown.value.message
    with pytest.raises(rankup.RankupError) as refused:
        values.count = [1]
    assert refused.value.code == "not-simple"
    with pytest.raises(rankup.RankupError) as twice:
        run.register(count=1)
    assert twice.value.code == "registered-twice"
    values = run.register(state={"weight": torch.zeros(2)})
    with pytest.raises(rankup.RankupError) as another:
        values.state = {"weight": torch.ones(2)}
    assert another.value.message.startswith("state is registered as a dict")
    assert "state.update(…)" in another.value.hint


def test_a_list_that_cannot_be_saved_any_more_says_where(run: rankup.Run):
    history: list[Any] = []
    run.register(history=history)
    history.append({"loss": Path("loss")})
    with pytest.raises(rankup.RankupError) as refused:
        run.state.state_dict()
    assert refused.value.code == "unsaveable-state"
    assert refused.value.message.startswith("history[0]['loss'] is a pathlib.")


def test_arrays_and_numbers_of_numpy_in_a_container_are_what_they_were():
    first, second = rankup.init(), rankup.init()
    kept = deque([(numpy.arange(6, dtype=numpy.int16).reshape(2, 3)[:, ::2], numpy.float32(0.1), {"a": 1})])
    kept[0][2][numpy.int64(3)] = numpy.array(["x", "yz"])
    found: deque[Any] = deque()
    first.register(kept=kept)
    second.register(kept=found)
    second.state.load_state_dict(first.state.state_dict())
    ((array, number, named),) = found
    assert array.dtype == numpy.int16 and array.tolist() == [[0, 2], [3, 5]] and array.flags.writeable
    assert type(number) is numpy.float32 and number == numpy.float32(0.1)
    assert named["a"] == 1 and named[3].tolist() == ["x", "yz"]


def test_a_value_that_was_saved_as_a_list_is_another_kind_of_thing():
    first, second = rankup.init(), rankup.init()
    first.register(best=[1.0])
    second.register(best=1.0)
    with pytest.raises(rankup.RankupError) as other:
        second.state.load_state_dict(first.state.state_dict())
    assert other.value.code == "other-registered"


def test_a_state_in_memory_is_not_changed_by_the_training_that_took_it_over():
    first, second = rankup.init(), rankup.init()
    first.register(table={"rows": [{"a": [1]}]})
    table: dict[str, Any] = {}
    second.register(table=table)
    saved = first.state.state_dict()
    second.state.load_state_dict(saved)
    table["rows"][0]["a"].append(2)
    assert saved["rank_state"]["registered"]["table"]["items"] == {"rows": [{"a": [1]}]}


class Counting(nn.Module):
    """A loss by how often each kind was seen."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1)
        self.register_buffer("seen", torch.zeros(1))
        self.seen: torch.Tensor

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        self.seen += seen
        return self.norm(x).square().mean()


class Average:
    """An average of the data, of each rank by itself."""

    def __init__(self) -> None:
        self.mean = torch.zeros(2)

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.mean = state["mean"]


def averaged(folder: str, norm: bool) -> str:
    run = rankup.init(snapshots=rankup.Snapshots(directory=folder, every="1 epochs"))
    net = nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2) if norm else nn.ReLU(), nn.Linear(2, 1))
    data = rankup.ResidentData(torch.arange(16.0)[:, None])
    model, opt, feed = run.prepare(net, lambda p: torch.optim.SGD(p, lr=0.01), data, global_batch=8)
    average = Average()
    run.register(average=average)
    try:
        for x in run.steps(feed, epochs=2):
            run.backward(model(x).mean())
            run.step(opt)
            average.mean += x.mean()
    except rankup.RankupError as error:
        return error.code
    return "trained"


@pytest.mark.repeated
@pytest.mark.parametrize(("norm", "outcome"), [(True, "trained"), (False, "ranks-differ")])
def test_small_tensors_of_an_object_differ_only_like_batch_statistics(
    tmp_path: Path, norm: bool, outcome: str
):
    assert run_ranks(averaged, 2, str(tmp_path), norm) == [outcome] * 2


def counted_loss(folder: str, alike: bool) -> str:
    run = rankup.init(snapshots=rankup.Snapshots(directory=folder, every="1 epochs"))
    data = rankup.ResidentData(torch.arange(16.0)[:, None])
    model, opt, _ = run.prepare(nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.01), data, global_batch=8)
    loss = Counting()
    run.register(loss=loss)
    try:
        for epoch in run.epochs(2):
            for x in epoch:
                seen = run.gather(x).sum() if alike else x.sum()
                run.backward(loss(model(x), seen))
                run.step(opt)
    except rankup.RankupError as error:
        return error.code
    return "trained"


@pytest.mark.repeated
@pytest.mark.parametrize(("alike", "outcome"), [(True, "trained"), (False, "ranks-differ")])
def test_a_buffer_of_a_registered_module_that_each_rank_counts_for_itself_is_an_error(
    tmp_path: Path, alike: bool, outcome: str
):
    assert run_ranks(counted_loss, 2, str(tmp_path), alike) == [outcome] * 2
