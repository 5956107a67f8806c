"""Batches that a loop hands out at once are those, and are counted as those, that it would hand out one by one."""

from __future__ import annotations

import gc
import threading

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

import rankup
from rankup.runtime.data import portions as portions_module
from rankup.runtime.data.batches import CHUNK
from rankup.runtime.data.portions import MadePortion, MakingPortion
from rankup.runtime.data.resident import CACHED
from rankup.runtime.loop import epochs as epochs_module

LENGTH, BATCH = 205, 4
STEPS = -(-LENGTH // BATCH)
X = torch.arange(float(LENGTH)).reshape(-1, 1)


class OneByOne(Dataset):
    """Each sample is made when it is asked for."""

    fails_at = -1

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, number: int) -> torch.Tensor:
        if number == self.fails_at:
            raise ValueError("no such sample")
        return X[number]


class Streamed(IterableDataset):
    """The same, of unknown length."""

    fails_at = -1

    def __iter__(self):
        for number in range(LENGTH):
            if number == self.fails_at:
                raise ValueError("no such sample")
            yield X[number]


# Floats of a row, such that a chunk of batches does not fit into the cache: they are gathered one by one.
WIDE = 2 * CACHED // (4 * CHUNK * BATCH)


def first_number(columns, random):
    return (columns[0][:, :1] + random.uniform(),)


DATA = {
    "made": lambda: rankup.ResidentData(X),
    "transformed": lambda: rankup.ResidentData(X, transform=lambda columns, random: (columns[0] * 2,)),
    "gathered": lambda: rankup.ResidentData(X.repeat(1, WIDE), transform=first_number),
    "loaded": OneByOne,
    "streamed": Streamed,
}


class FakeClock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def prepared(kind: str, **options):
    run = rankup.init(device="cpu", seed=1)
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=1e-6), DATA[kind](), global_batch=BATCH, **options
    )
    return run, model, opt, data


def seen_by(kind: str, moment: float, monkeypatch: pytest.MonkeyPatch, epochs: int = 3):
    """What each body sees. Without a moment, each batch is handed out by itself."""
    monkeypatch.setattr(epochs_module, "_MOMENT", moment)
    run, model, opt, data = prepared(kind)
    seen = []
    for x in run.steps(data, epochs=epochs):
        first = run.batch
        assert run.batch.value is x
        seen.append(
            (x.flatten().tolist(), run.global_step, *first[1:], data.position.step, data.position.total)
        )
        model(x).sum().backward()
        opt.step()
        opt.zero_grad()
    return seen, run.global_step


@pytest.mark.parametrize("kind", DATA)
def test_a_body_sees_what_it_would_see_alone(kind, monkeypatch):
    portions = []
    for name in ("MadePortion", "MakingPortion"):
        real = getattr(epochs_module, name)

        def made(*args, real=real):
            portions.append(real(*args))
            return portions[-1]

        monkeypatch.setattr(epochs_module, name, made)
    one_by_one = seen_by(kind, 0.0, monkeypatch)
    assert len(portions) == 3 * STEPS
    del portions[:]
    assert seen_by(kind, 60.0, monkeypatch) == one_by_one
    assert len(portions) < STEPS
    meant = MadePortion if kind == "made" else MakingPortion
    assert max(one.handed for one in portions if type(one) is meant) > 10


@pytest.mark.parametrize("kind", ["transformed", "gathered", "loaded"])
def test_the_data_finds_the_run_where_it_would_be_alone(kind, monkeypatch):
    """A curriculum asks for the step while the next batch is made."""
    found = {}
    for moment in (0.0, 60.0):
        monkeypatch.setattr(epochs_module, "_MOMENT", moment)
        run, _, _, data = prepared(kind)
        seen = found[moment] = []

        def look(run=run, data=data, seen=seen):
            at = (run.global_step, data.position.step, data.position.total)
            seen.append((*at, run._context.steps_reached, run._context.batch and run.batch.value.tolist()))

        if kind == "loaded":
            monkeypatch.setattr(OneByOne, "__getitem__", lambda self, n, look=look: (look(), X[n])[1])
        else:
            data._transform = lambda columns, random, look=look: (look(), columns)[1]
        for _ in run.steps(data, epochs=2):
            assert run.batch.samples <= BATCH
    assert found[60.0] == found[0.0]
    assert len({step for step, *_ in found[0.0]}) == 2 * STEPS


# One column is gathered for many batches at once, the other one for each batch.
DATA_OF_RESUMES = {
    **{kind: make for kind, make in DATA.items() if kind != "streamed"},
    "drawn": lambda: rankup.ResidentData(
        X, transform=lambda columns, random: (columns[0] + random.uniform(),)
    ),
    "mixed": lambda: rankup.ResidentData(X, X.repeat(1, WIDE)),
}


@pytest.mark.parametrize("options", [{}, {"accumulate": 2}], ids=["steps", "micro-batches"])
@pytest.mark.parametrize("kind", DATA_OF_RESUMES)
def test_the_batches_from_a_step_on_are_those_that_the_whole_epoch_has_there(kind, options, monkeypatch):
    monkeypatch.setitem(DATA, kind, DATA_OF_RESUMES[kind])
    _, _, _, data = prepared(kind, **options)

    def given(start: int):
        return [
            (*batch[1:], [column[:, :1].tolist() for column in batch.value])
            if kind == "mixed"
            else (*batch[1:], batch.value[:, :1].tolist())
            for batch in data.batches(1, start)
        ]

    whole, parts = given(0), len(options) + 1
    for start in (1, 23, STEPS - 1, STEPS):
        assert given(start) == whole[parts * start :]


@pytest.mark.parametrize("kind", DATA)
def test_a_break_leaves_the_loop_where_its_body_was(kind, monkeypatch):
    monkeypatch.setattr(epochs_module, "_MOMENT", 60.0)
    run, _, _, data = prepared(kind)
    held = run.steps(data, epochs=2)
    for number, _ in enumerate(held, 1):
        if number == 23:
            break
    held.close()
    assert (run.global_step, data.position.step, data.position.total) == (23, 23, 23)
    assert list(held) == [] and run.global_step == 23


@pytest.mark.parametrize("kind", DATA)
def test_an_evaluation_in_a_body_ends_the_portion(kind, monkeypatch):
    """Its loop is left unfinished: the next step has gradients all the same."""
    monkeypatch.setattr(epochs_module, "_MOMENT", 60.0)
    run, model, opt, data = prepared(kind)
    open_ones = []
    for x in run.steps(data, epochs=1):
        assert torch.is_grad_enabled()
        model(x).sum().backward()
        opt.step()
        opt.zero_grad()
        if run.global_step in (20, 21, 30):
            batch = run.batch
            evaluation = run.batches(rankup.ResidentData(X), global_batch=50)
            assert len(next(evaluation)) == 50 and run.batch.samples == 50
            open_ones.append(evaluation)
            assert batch.samples == BATCH
    assert run.global_step == STEPS and len(open_ones) == 3


@pytest.mark.parametrize("kind", DATA)
def test_samples_are_counted_up_to_the_body_at_hand(kind, monkeypatch):
    """Asked for in a body, in a state that is taken there, and after a break."""
    monkeypatch.setattr(epochs_module, "_MOMENT", 60.0)
    run, _, _, data = prepared(kind)
    for epoch in run.epochs(2):
        for done, _ in enumerate(epoch):
            assert epoch.samples == done * BATCH
            held = run._context.records.state_dict()["epoch_samples"]
            assert held == min((done + 1) * BATCH, LENGTH)
            if epoch.index == 1 and done == 28:
                break
        assert epoch.samples == (LENGTH if epoch.index == 0 else 29 * BATCH)
    assert run._context.records._totals.counts.total == LENGTH + 29 * BATCH


def prepared_to_fail(kind: str, at: int):
    """Data whose step ``at`` raises a ValueError."""
    run, _, _, data = prepared(kind, shuffle=False)
    if kind == "loaded":
        data.dataset.fails_at = at * BATCH
    elif kind == "streamed":
        data._reader.dataset.fails_at = at * BATCH
    else:
        transform = data._transform

        def failing(columns, random):
            if columns[0][0, 0] == at * BATCH:
                raise ValueError("no such sample")
            return transform(columns, random)

        data._transform = failing
    return run, data


@pytest.mark.parametrize("kind", ["transformed", "gathered", "loaded", "streamed"])
def test_an_error_of_the_data_is_raised_in_the_loop_and_leaves_nothing_behind(kind, monkeypatch):
    monkeypatch.setattr(epochs_module, "_MOMENT", 60.0)
    run, data = prepared_to_fail(kind, 30)
    done = 0
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ValueError, match="no such sample"):  # noqa: PT012
            for _ in run.steps(data, epochs=1):
                done += 1
        assert (done, run.global_step, data.position.step) == (30, 30, 30)
        assert not run._checkpointing._open  # the loop is over, and waits for no garbage collector
    finally:
        gc.enable()


@pytest.mark.parametrize("moment", [0.0, 60.0])
@pytest.mark.parametrize("kind", ["transformed", "loaded"])
def test_a_stop_iteration_of_the_data_is_an_error_at_its_step(kind, moment, monkeypatch):
    """An iterator would end by it, or go on with the batch behind."""
    monkeypatch.setattr(epochs_module, "_MOMENT", moment)

    def failing(samples):
        if samples[0][0] == 30 * BATCH:
            raise StopIteration
        return samples if kind == "transformed" else torch.stack(samples)

    options = {"collate_fn": failing} if kind == "loaded" else {}
    run, _, _, data = prepared(kind, shuffle=False, **options)
    if kind == "transformed":
        data._transform = lambda columns, random: failing(columns)
    with pytest.raises(RuntimeError, match="StopIteration"):
        for _ in run.steps(data, epochs=1):
            pass
    assert run.global_step == 30


@pytest.mark.parametrize("kind", ["made", "transformed", "gathered"])
def test_what_a_break_leaves_ready_is_of_no_later_epoch(kind, monkeypatch):
    monkeypatch.setattr(epochs_module, "_MOMENT", 60.0)
    seen = {}
    for breaks in (False, True):
        run, _, _, data = prepared(kind)
        for epoch in run.epochs(3):
            for step, x in enumerate(epoch):
                if breaks and epoch.index == 0 and step == 20:
                    break
                if epoch.index:
                    seen.setdefault(breaks, []).append(x.flatten().tolist())
    assert seen[True] == seen[False] and len(seen[True]) == 2 * STEPS


def test_the_time_that_made_batches_take_counts_as_waiting(monkeypatch):
    monkeypatch.setattr(epochs_module, "_MOMENT", 60.0)
    clock = FakeClock()
    monkeypatch.setattr(portions_module, "_clock", clock)

    def slow(columns, random):
        clock.now += 3.0
        return columns

    run = rankup.init(device="cpu", seed=1)
    _, _, data = run.prepare(
        nn.Linear(1, 1), None, rankup.ResidentData(X, transform=slow), global_batch=BATCH
    )
    for _ in run.steps(data, epochs=1):
        pass
    waited = run._context.records._totals.counts.waited
    assert waited >= 3.0 * (STEPS - 15)  # the first steps are timed otherwise


def attended_steps(run) -> list[int]:
    attended, attend = [], run._checkpointing.attend
    run._checkpointing.attend = lambda: (attended.append(run.global_step), attend())
    return attended


def test_a_portion_ends_where_something_is_due(monkeypatch, tmp_path):
    monkeypatch.setattr(epochs_module, "_MOMENT", 60.0)
    snapshots = rankup.Snapshots(every="7 steps", directory=tmp_path, asynchronous=False)
    run = rankup.init(device="cpu", seed=1, snapshots=snapshots)
    _, _, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(X), global_batch=BATCH
    )
    attended = attended_steps(run)
    assert len(list(run.steps(data, epochs=1))) == STEPS
    assert {*range(7, STEPS + 1, 7), 1, 2, 4, 8, 16, 32} <= {*attended}


def test_a_request_is_attended_after_the_step_at_hand(monkeypatch):
    monkeypatch.setattr(epochs_module, "_MOMENT", 60.0)
    run, _, _, data = prepared("made")
    attended = attended_steps(run)
    for _ in run.steps(data, epochs=1):
        if run.global_step == 40:
            run._checkpointing._attend_now()  # as the handler of a signal does
    assert 41 in attended


class Stream(IterableDataset):
    """It asks for attention while its last, shorter batch is read."""

    def __iter__(self):
        for number in range(LENGTH):
            if number == LENGTH - 1:
                self.ask()
            yield X[number]


def test_a_request_while_a_batch_is_read_is_attended_when_the_stream_stands_at_the_step(monkeypatch):
    monkeypatch.setattr(epochs_module, "_MOMENT", 60.0)
    run = rankup.init(device="cpu", seed=1)
    stream = Stream()
    _, _, data = run.prepare(nn.Linear(1, 1), None, stream, global_batch=BATCH, sharded=False)
    stream.ask = run._checkpointing._attend_now
    stood, attend = [], run._checkpointing.attend
    run._checkpointing.attend = lambda: (stood.append((data.position.step, data.state()["at"])), attend())
    for _ in run.steps(data, epochs=1):
        pass
    assert all(at == [0, step] for step, at in stood)
    assert stood[-1][0] == STEPS


class Alternating:
    """Batches of 10 samples in the first epoch, of 4 and 6 in turns in the second one."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self):
        for start in range(0, 100, 10):
            middle = start + (4 if self.epoch else 10)
            yield [*range(start, middle)]
            if middle < start + 10:
                yield [*range(middle, start + 10)]


def test_batches_that_a_break_left_are_not_those_of_an_epoch_cut_otherwise(monkeypatch):
    monkeypatch.setattr(epochs_module, "_MOMENT", 60.0)
    run = rankup.init(device="cpu", seed=1)
    sampler = Alternating()
    _, _, data = run.prepare(nn.Linear(1, 1), None, rankup.ResidentData(X), batch_sampler=sampler)
    seen = []
    for epoch in run.epochs(2):
        for step, x in enumerate(epoch):
            if epoch.index == 0 and step == 2:
                break
            if epoch.index:
                seen += x.flatten().tolist()
    assert seen == [*range(100)]


def test_progress_is_told_within_a_portion(monkeypatch):
    """For the thread that says that no step is done any more."""
    monkeypatch.setattr(epochs_module, "_MOMENT", 60.0)
    run, _, _, data = prepared("made")
    told = []
    for _ in run.steps(data, epochs=1):
        thread = threading.Thread(target=lambda: told.append(run._context.records.progress()[0]))
        thread.start()
        thread.join()
    assert told == list(range(1, STEPS + 1))
