"""A data set that changes while loader workers have a copy of it is an error. Other changes are allowed."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset, default_collate

import rankup
from ranks import run_ranks
from rankup.errors import RankupError
from rankup.runtime.checkpointing.registered import Values
from rankup.runtime.data.worker_copies import WorkerCopies

LENGTH = 24
SHIFT = 0.0


class Scaled:
    factor = 1.0

    def __call__(self, value: Any) -> Any:
        return value * self.factor


class Levelled(Dataset[Any]):
    """What its samples depend on, and what it keeps besides."""

    def __init__(self) -> None:
        self.rows = torch.zeros(100_000, 2)
        self.array = numpy.zeros(8)
        self.level, self.hidden, self.pushed = 0.0, 0.0, 0
        self.transforms = [Scaled()]
        self.values = Values()
        vars(self.values)["_values"].update(level=0.0, best=0.0)
        self.generator = torch.Generator()
        self.kept: dict[int, Any] = {}
        self.file: Any = None

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        self.file = self.file or "opened"
        row = self.rows[index] + self.array[0] + self.shift() + self.values.level
        for transform in self.transforms:
            row = transform(row)
        return self.kept.setdefault(index, row + torch.rand(1, generator=self.generator)) * self.level

    def shift(self) -> float:
        return self.hidden + SHIFT

    def push(self) -> None:
        self.pushed += 1


class Trainer:
    """Its collate_fn reads one of its attributes, and a setting of its model."""

    def __init__(self) -> None:
        self.model, self.steps, self.padding = nn.Linear(1, 1), 0, 0
        self.count = self.max = 0  # names of a list's method and of a function, which its collate_fn calls

    def collate(self, samples: list[Any]) -> Any:
        given = max(len(samples), samples.count(None))
        return default_collate(samples[:given]), self.padding, self.model.in_features


class Slotted:
    __slots__ = ("level",)

    def __init__(self) -> None:
        self.level = 0

    def __call__(self, samples: list[Any]) -> Any:
        return samples, self.level


def changed(thing: Any, name: str, value: Any = 1.5) -> None:
    setattr(thing, name, value)


def shifted() -> None:
    global SHIFT
    SHIFT += 1


def closed() -> tuple[Dataset[Any], Callable[[Any], None]]:
    level = 0

    class Closed(Dataset[Any]):
        def __getitem__(self, index: int) -> int:
            return level

    def rise(_: Any) -> None:
        nonlocal level
        level += 1

    return Closed(), rise


class Transforming(Dataset[Any]):
    """It calls what it holds, and reads nothing of it."""

    def __init__(self) -> None:
        self.transform = Scaled()
        self.net = nn.Linear(1, 1).requires_grad_(False)
        self.activation = torch.relu
        self.place = self.first

    def first(self, row: Any) -> Any:
        return row[0]

    def last(self, row: Any) -> Any:
        return row[-1]

    def __getitem__(self, index: int) -> Any:
        return self.place(self.activation(self.net(self.transform(torch.ones(1)))))


class Reversed:
    def __call__(self, value: Any) -> Any:
        return value.flip(0)


CHANGES: dict[str, tuple[Any, Callable[[Any], None]]] = {
    "Levelled.level: 0.0, 1.5": (Levelled(), lambda data: changed(data, "level")),
    "Levelled.hidden: 0.0, 1.5": (
        Levelled(),
        lambda data: changed(data, "hidden"),
    ),  # read by a method that is called
    "Levelled.transforms[0].factor: 1.0, 1.5": (
        Levelled(),
        lambda data: changed(data.transforms[0], "factor"),
    ),
    "Levelled.values.level: 0.0, 1.5": (
        Levelled(),
        lambda data: vars(data.values)["_values"].update(level=1.5),
    ),
    # One row of many, of which a mark sees some.
    "Levelled.rows: Tensor of shape (100000, 2), Tensor of shape (100000, 2)": (
        Levelled(),
        lambda data: data.rows[50_001].add_(1),
    ),
    "Levelled.array: array of shape (8,), array of shape (8,)": (
        Levelled(),
        lambda data: data.array.__setitem__(3, 1),
    ),
    "Transforming.transform.factor: 1.0, 1.5": (
        Transforming(),
        lambda data: changed(data.transform, "factor"),
    ),
    "Transforming.net: a Linear, a Linear": (Transforming(), lambda data: data.net.weight.data.add_(1)),
    "Transforming.activation: relu, tanh": (
        Transforming(),
        lambda data: changed(data, "activation", torch.tanh),
    ),
    "Transforming.place: first, last": (Transforming(), lambda data: changed(data, "place", data.last)),
    "Transforming.transform: a Scaled, a Reversed": (
        Transforming(),
        lambda data: changed(data, "transform", Reversed()),
    ),
    "SHIFT: 0.0, 1.0": (Levelled(), lambda data: shifted()),
    "level: 0, 1": closed(),
    "Subset.indices: list of 1, list of 2": (Subset(Levelled(), [0]), lambda data: data.indices.append(1)),
    "Subset.dataset.level: 0.0, 1.5": (Subset(Levelled(), [0]), lambda data: changed(data.dataset, "level")),
    "ConcatDataset.datasets[1].level: 0.0, 1.5": (
        ConcatDataset([Levelled(), Levelled()]),
        lambda data: changed(data.datasets[1], "level"),
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_the_samples_are_made_of_is_named_when_it_changes(what):
    data, change = CHANGES[what]
    copies = WorkerCopies(data, default_collate)
    assert copies.changed(()) == []
    change(data)
    assert [f"{path}: {was}, {now}" for path, was, now in copies.changed(())] == [what]


COLLATES: dict[str, tuple[Any, Callable[[Any], None]]] = {
    "collate_fn.__self__.padding": (Trainer().collate, lambda collate: changed(collate.__self__, "padding")),
    "collate_fn.keywords['fill'][0]": (
        partial(lambda samples, fill: samples, fill=[torch.zeros(2)]),
        lambda collate: collate.keywords["fill"][0].add_(1),
    ),
    "collate_fn.level": (Slotted(), lambda collate: changed(collate, "level", 2)),
}


@pytest.mark.parametrize("path", COLLATES)
def test_what_collate_fn_holds_counts_too(path):
    collate, change = COLLATES[path]
    copies = WorkerCopies(Levelled(), collate)
    change(collate)
    assert [found for found, *_ in copies.changed(())] == [path]


NO_CHANGES: dict[str, Callable[[Levelled, Trainer], None]] = {
    "read in this process: a file and a cache": lambda data, trainer: data[3],
    "what no code for a sample reads": lambda data, trainer: data.push(),
    "its generator": lambda data, trainer: data.generator.manual_seed(3),
    "another registered value": lambda data, trainer: vars(data.values)["_values"].update(best=1.0),
    "a number of the trainer": lambda data, trainer: changed(trainer, "steps", 3),
    "the weights": lambda data, trainer: trainer.model.weight.data.add_(1),
    "the same value": lambda data, trainer: changed(data, "array", data.array.copy()),
    "a method's name": lambda data, trainer: changed(trainer, "count"),
    "a function's name": lambda data, trainer: changed(trainer, "max"),
}


@pytest.mark.parametrize("what", NO_CHANGES)
def test_what_makes_no_other_sample_is_no_change(what):
    data, trainer = Levelled(), Trainer()
    copies = WorkerCopies(data, trainer.collate)
    NO_CHANGES[what](data, trainer)
    assert copies.changed(()) == []


def test_what_was_filled_counts_from_its_next_change_on():
    data = Levelled()
    copies = WorkerCopies(data, default_collate)
    data.file = "opened"
    assert copies.changed(()) == []
    data.file = "another"
    assert copies.changed(()) == [("Levelled.file", "'opened'", "'another'")]


def test_a_forgotten_name_is_no_change():
    data = Levelled()
    copies = WorkerCopies(data, default_collate)
    data.level = 1.0
    assert copies.changed({"data.level"}) == copies.changed({"level"}) == []


# ------------------------------------------------------------------ in a training


class Curriculum(Dataset[Any]):
    def __init__(self) -> None:
        self.level = 0.0

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([self.level, float(index)])


class Stream(IterableDataset[Any]):
    def __init__(self) -> None:
        self.level = 0.0

    def __iter__(self) -> Any:
        return (torch.tensor([self.level, float(index)]) for index in range(LENGTH))


def trained(when: str, directory: str = "", kind: Any = Curriculum, **options: Any) -> Any:
    """What the batches had in three epochs of six steps; the error's code and the step of it."""
    if directory:
        os.environ["RANKUP_RUN_DIR"] = directory
    run = rankup.init(snapshots=rankup.Snapshots(every="7 steps" if directory else "off"))
    data = kind()
    if options.get("num_workers"):
        options["multiprocessing_context"] = "fork"
    model, opt, feed = run.prepare(
        nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, **{"global_batch": 4, **options}
    )
    run.register(data=data)
    levels: list[list[float]] = []
    try:
        for epoch in run.epochs(3, feed):
            if when == "before":
                data.level = float(epoch.index)
            levels.append([])
            for batch in epoch:
                run.backward(model(batch).mean())
                run.step(opt)
                levels[-1].append(batch[0, 0].item())
                here = "last rank" if run.world.rank == run.world.world_size - 1 else "other"
                if when in (here, "body", f"step {run.global_step + 1}"):
                    data.level += 1
                if when == "break" and run.global_step == 2:
                    data.level += 1
                    break
            if when == "after":
                data.level += 1
    except RankupError as error:
        return error.code, run.global_step
    return levels


ALIKE = [[float(epoch)] * 6 for epoch in range(3)]


@pytest.mark.parametrize(
    ("when", "options", "found"),
    [
        ("body", {"num_workers": 1}, ("data-changed", 1)),
        ("step 3", {"num_workers": 1}, ("data-changed", 4)),  # at the next look
        ("step 5", {"num_workers": 1}, ("data-changed", 5)),  # at the last one of an epoch
        ("step 6", {"num_workers": 1}, [[0.0] * 6, [1.0] * 6, [1.0] * 6]),  # its workers have no more to do
        (
            "step 8",
            {"num_workers": 1, "global_batch": 3},
            [[0.0] * 8, [1.0] * 8, [1.0] * 8],
        ),  # also at a look
        ("after", {"num_workers": 1}, ALIKE),
        ("break", {"num_workers": 1}, [[0.0] * 3, [1.0] * 6, [1.0] * 6]),
        ("before", {"num_workers": 1}, ALIKE),
        ("after", {"num_workers": 1, "persistent_workers": True}, ("data-changed", 6)),
        ("before", {"num_workers": 1, "persistent_workers": True}, ("data-changed", 6)),
        ("never", {"num_workers": 1, "persistent_workers": True}, [[0.0] * 6] * 3),
        ("body", {}, [[float(at + 6 * epoch) for at in range(6)] for epoch in range(3)]),
    ],
)
def test_only_a_change_that_workers_do_not_get_is_an_error(when, options, found):
    assert run_ranks(partial(trained, **options), 1, when) == [found]


def test_a_change_on_one_rank_is_the_error_of_all():
    assert run_ranks(partial(trained, num_workers=1), 2, "last rank") == [("data-changed", 1)] * 2


@pytest.mark.parametrize("when", ["body", "after"])
def test_a_stream_is_looked_at_too(when):
    (found,) = run_ranks(partial(trained, kind=Stream, num_workers=1), 1, when)
    assert found == (("data-changed", 1) if when == "body" else ALIKE)


def test_no_snapshot_has_another_data_set_than_the_workers(tmp_path: Path):
    # In the second epoch, between two looks: the save after step 14 is the next thing that happens.
    assert run_ranks(partial(trained, num_workers=1), 1, "step 13", str(tmp_path)) == [("data-changed", 14)]


def test_an_evaluation_may_change_its_data():
    def evaluated() -> list[float]:
        run, data = rankup.init(), Curriculum()
        batches = run.batches(data, global_batch=4, num_workers=1, multiprocessing_context="fork")
        seen = []
        for batch in batches:
            seen.append(batch[0, 0].item())
            data.level += 1
        return seen

    assert evaluated() == [0.0] * 6


def test_a_plain_tensor_data_set_is_compared_by_its_writes():
    data = TensorDataset(torch.zeros(100_000))
    copies = WorkerCopies(data, default_collate)
    data.tensors[0][77_777] = 1
    assert [path for path, *_ in copies.changed(())] == ["TensorDataset.tensors[0]"]
