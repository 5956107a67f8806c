"""Iterators beside a loop, which go on from pass to pass, and begin anew after a resume."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from ranks import run_ranks
from rankup.runtime.checkpointing.carried.iterators import iterator_mark
from runtime.checkpointing.carrying import attempts, begin, step

VALUES = [1.0, 0.5, 0.25, 0.125, 0.3, 0.7]


def loader() -> DataLoader[Any]:
    return DataLoader(torch.arange(30.0), batch_size=5)  # type: ignore[arg-type]


def forever(batches: Any) -> Iterator[Any]:
    while True:
        for batch in batches:  # noqa: UP028
            yield batch


def without_a_variable() -> Iterator[float]:
    yield 0.1
    yield from VALUES


MADE: dict[str, Any] = {
    "list": lambda: iter(VALUES),
    "range": lambda: iter(range(20)),
    "dict": lambda: iter(dict.fromkeys(VALUES, 1)),
    "reversed": lambda: reversed(VALUES),
    "cycle": lambda: itertools.cycle(VALUES),
    "zip": lambda: zip(itertools.count(), VALUES, strict=False),
    "map": lambda: map(abs, VALUES),
    "filter": lambda: filter(None, VALUES),
    "enumerate": lambda: enumerate(VALUES),
    "islice": lambda: itertools.islice(itertools.cycle(VALUES), 15),
    "chain": lambda: itertools.chain(VALUES, VALUES),
    "product": lambda: itertools.product(VALUES, VALUES),
    "count": lambda: itertools.count(3),
    "loader": lambda: iter(loader()),
    "cycle of a loader": lambda: itertools.cycle(loader()),
    "generator of a loader": lambda: forever(loader()),
    "generator of a generator": lambda: (each.mean() for each in forever(loader())),
    "generator without a variable": without_a_variable,
}


@pytest.mark.parametrize("kind", MADE)
def test_the_place_of_an_iterator_is_seen_and_looking_does_not_move_it(kind: str):
    one, other = MADE[kind](), MADE[kind]()
    marks = []
    for _ in range(5):
        assert iterator_mark(one) == iterator_mark(other)
        marks.append(iterator_mark(one))
        assert repr(next(one)) == repr(next(other))
    assert None not in marks
    assert len(set(marks)) == 5


def noise(size: int) -> Iterator[torch.Tensor]:
    while True:
        yield torch.randn(size)


def test_a_generator_that_keeps_nothing_is_at_one_place():
    values = noise(3)
    before = iterator_mark(values)
    next(values)
    assert iterator_mark(values) == before is not None


def test_what_may_pass_on_the_batches_of_the_loop_has_no_place_of_its_own(tmp_path: Path):
    run_ranks(_passed_on, 1, str(tmp_path))


def _passed_on(directory: str) -> None:
    run, model, opt = begin(directory)
    for epoch in run.epochs(1):
        assert iterator_mark(forever(epoch)) is None
        assert iterator_mark(zip(VALUES, forever(epoch), strict=False)) is None
        batches = enumerate(epoch)
        assert iterator_mark(batches) is None
        for _, batch in batches:
            assert iterator_mark(batches) is None
            step(run, model, opt, batch, -1)


def beside_a_list(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    scales = iter(VALUES * 2)
    for epoch in run.epochs(3):
        for batch in epoch:
            next(scales)
            step(run, model, opt, batch, stop)


def beside_an_endless_loader(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    others = forever(loader())
    for epoch in run.epochs(3):
        for batch in epoch:
            next(others)
            step(run, model, opt, batch, stop)


@pytest.mark.parametrize(
    ("train", "lost"),
    [
        (
            beside_a_list,
            "scales (a list_iterator with 6 values left when it was saved, a list_iterator with 12 values left now)",
        ),
        (beside_an_endless_loader, "others (a generator"),
    ],
)
def test_an_iterator_that_begins_anew_after_a_resume_is_named(tmp_path: Path, train: Any, lost: str):
    _, (second,) = attempts(train, tmp_path, (6, 7))
    assert f"this resume has lost them: {lost}" in second


def zipped(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    for epoch in run.epochs(3):
        pairs = zip(epoch, VALUES, strict=False)
        for batch, _ in pairs:
            step(run, model, opt, batch, stop)


def zipped_by_a_function(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)

    def train(batches: Any, others: Any) -> None:
        for _, (batch, _) in enumerate(zip(batches, others, strict=False)):
            step(run, model, opt, batch, stop)

    for epoch in run.epochs(3):
        train(epoch, loader())


def zipped_flat(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    for batch, _ in zip(run.steps(None, epochs=3), VALUES * 3, strict=False):
        step(run, model, opt, batch, stop)


def zipped_behind_what_is_done(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    for epoch in run.epochs(3):
        for batch, _ in zip(epoch, itertools.islice(VALUES, epoch.done, None), strict=False):
            assert len([*zip(model.parameters(), VALUES, strict=False)]) == 2
            step(run, model, opt, batch, stop)


@pytest.mark.parametrize(
    ("train", "named"),
    [
        (zipped, "begins VALUES at the start after this resume, and 2 steps were done"),
        (zipped_by_a_function, "begins others at the start after this resume, and 2 steps were done"),
        (zipped_flat, "begins VALUES * 3 at the start after this resume, and 6 steps were done"),
        (zipped_behind_what_is_done, ""),
    ],
)
def test_what_zip_pairs_with_the_batches_of_a_resumed_epoch_is_named(tmp_path: Path, train: Any, named: str):
    _, (second,) = attempts(train, tmp_path, (6, 7))
    assert second.count(" at the start after this resume") == bool(named)
    assert named in second


def test_at_the_start_of_an_epoch_zip_pairs_as_ever(tmp_path: Path):
    _, (second,) = attempts(zipped, tmp_path, (4, 5))
    assert "warning" not in second


def calling(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)

    def train(batch: torch.Tensor) -> None:
        train.calls += 1  # type: ignore[attr-defined]
        step(run, model, opt, batch, stop)

    train.calls = 0  # type: ignore[attr-defined]
    for epoch in run.epochs(3):
        for batch in epoch:
            train(batch)


def test_an_attribute_of_a_function_is_named(tmp_path: Path):
    _, (second,) = attempts(calling, tmp_path, (6, 7))
    assert "train.calls (6 when it was saved, 0 now)" in second
