"""Each sample of a stream once over all ranks and workers, whoever splits it; or an error before the first step."""

from __future__ import annotations

import contextlib
import io
import random
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import streams
import torch
from streams import LENGTH, feed_of, numbers, passes, saved_and_read
from torch.utils.data import DataLoader

import rankup
from ranks import run_ranks
from rankup.errors import RankupError
from rankup.runtime.data import stream_reader
from rankup.runtime.data.stream_split import (
    Reader,
    StreamEnd,
    StreamStart,
    check_pass,
    check_sharded,
    check_starts,
)

pytestmark = pytest.mark.filterwarnings("ignore:an IterableDataset has no order")

WebDataset, HuggingFace = streams.WebDataset, streams.HuggingFace
# The way out of each kind of stream on several ranks: seen once, or the error.
ONCE = {
    "plain": (streams.Plain, None),
    "shuffled by the global generators": (streams.GlobalShuffle, None),
    "shuffled by the worker's seed": (streams.SeedShuffle, None),
    "its own iterator": (streams.Once, None),
    "its own iterator, by worker": (streams.OnceByWorker, None),
    "Hugging Face": (HuggingFace, None),
    "Hugging Face, declared": (HuggingFace, "workers"),
    "Hugging Face, one shard": (partial(HuggingFace, 1), None),
    "Hugging Face, split by node": (streams.by_node, True),
    "WebDataset, no node splitter": (partial(WebDataset, nodes=False, workers=True), None),
    "WebDataset, no splitter at all": (partial(WebDataset, nodes=False, workers=False), False),
    "WebDataset, both splitters": (partial(WebDataset, nodes=True, workers=True), True),
    "WebDataset, node splitter only": (partial(WebDataset, nodes=True, workers=False), "ranks"),
    "WebDataset, shuffled": (partial(WebDataset, nodes=False, workers=True, shuffle=True), "workers"),
    "by hand": (streams.ByHand, True),
    "by rank": (streams.ByRank, "ranks"),
    "declared unsplit": (streams.Plain, False),
}
EVALUATED = ("plain", "Hugging Face", "WebDataset, both splitters")
REFUSED = {
    "own shuffle": (streams.OwnShuffle, None, "streams-differ"),
    "own shuffle later on": (partial(streams.OwnShuffle, 8), None, "streams-differ"),
    "shorter on one rank": (streams.ShorterElsewhere, None, "streams-differ"),
    "Hugging Face, split by node": (streams.by_node, None, "streams-differ"),
    "Hugging Face, declared True": (HuggingFace, True, "streams-repeat"),
    "WebDataset, both splitters": (partial(WebDataset, nodes=True, workers=True), None, "streams-differ"),
    "WebDataset, shuffled": (
        partial(WebDataset, nodes=False, workers=True, shuffle=True),
        None,
        "streams-differ",
    ),
    "by hand": (streams.ByHand, None, "streams-differ"),
    "by rank": (streams.ByRank, None, "streams-differ"),
    "plain, declared True": (streams.Plain, True, "streams-repeat"),
    "own shuffle, declared workers": (streams.OwnShuffle, "workers", "streams-repeat"),
}
REFUSED_IN_WORKERS = {
    "WebDataset, no splitter at all": (
        partial(WebDataset, nodes=False, workers=False),
        None,
        "streams-repeat",
    ),
    "asks late": (streams.AsksLate, None, "stream-miscounted"),
}


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("world_size", "workers"),
    [(1, 0), *(pytest.param(*each, marks=pytest.mark.campaign) for each in ((1, 2), (2, 0), (3, 0))), (3, 2)],
)
def test_each_sample_once_in_training_and_evaluation(world_size, workers):
    ranks = run_ranks(passes, world_size, ONCE, workers, 1, EVALUATED)
    for name in ONCE:
        assert not [rank[name] for rank in ranks if isinstance(rank[name], str)], name
        for kind in range(2 if name in EVALUATED else 1):
            seen = sum((rank[name][kind] for rank in ranks), [])
            assert sorted(seen) == list(range(LENGTH)), (name, "evaluation" if kind else "training")
        if name not in ("Hugging Face, one shard",) or workers == 0:
            assert all(rank[name][0] for rank in ranks), (name, "a rank without samples")


@pytest.mark.repeated
@pytest.mark.parametrize(("world_size", "workers"), [(2, 0), (3, 2)])
def test_what_would_lose_or_double_samples_is_refused_on_all_ranks(world_size, workers):
    refused = REFUSED | (REFUSED_IN_WORKERS if workers else {})
    cases = {name: case[:2] for name, case in refused.items()}
    for rank in run_ranks(passes, world_size, cases, workers):
        assert rank == {name: case[2] for name, case in refused.items()}


def plain_torch(dataset, workers: int) -> list[int]:
    """What a plain loop over a DataLoader sees on one rank."""
    return [
        int(number)
        for number in DataLoader(
            dataset,
            batch_size=None,
            num_workers=workers,
            multiprocessing_context="fork" if workers else None,
        )
    ]


def test_plain_torch_doubles_what_is_not_split_over_ranks():
    """What these tests are for: without rankup two ranks see each sample of a Hugging Face stream twice."""
    seen = plain_torch(HuggingFace(), 2) * 2
    assert sorted(seen) == sorted([*range(LENGTH)] * 2)


def several_epochs(workers: int) -> list[list[list[int]]]:
    run = rankup.init(seed=1)
    held = []
    for dataset in (HuggingFace(), streams.GlobalShuffle()):
        feed = feed_of(run, dataset, None, workers, training=True, persistent_workers=workers > 0)
        held.append([numbers(feed.batches(epoch, 0)) for epoch in range(3)])
        again = feed_of(run, dataset, None, workers, training=True)
        held.append([numbers(again.batches(1, 0)), numbers(again.batches(1, 2))])
        feed._loader._iterator = None
    return held


@pytest.mark.repeated
@pytest.mark.parametrize("workers", [0, 2])
def test_epochs_differ_also_in_persistent_workers_and_a_resume_skips_what_was_seen(workers):
    ranks = run_ranks(several_epochs, 2, workers)
    for stream in (0, 2):
        epochs = [sum((rank[stream][epoch] for rank in ranks), []) for epoch in range(3)]
        assert all(sorted(epoch) == list(range(LENGTH)) for epoch in epochs)
        assert len({tuple(epoch) for epoch in epochs}) == 3
        for rank in ranks:
            whole, resumed = rank[stream + 1]
            assert whole == rank[stream][1]
            assert resumed == whole[6:]  # two steps of three samples


# ---------------------------------------------------------------- resumes


def resumed_at_each_step(cases: dict[str, tuple], workers: int, keep: int) -> dict[str, list[str]]:
    """By case, at which steps of the second epoch a resume does not give what is left of it, or says something."""
    stream_reader.KEEP = keep
    run = rankup.init(seed=1)
    warnings.simplefilter(
        "once"
    )  # and not at each line that reads: what the first pass has said is no answer to a resume
    found: dict[str, list[str]] = {}
    for name, (make, sharded) in cases.items():
        feed = feed_of(run, make(), sharded, workers, training=True)
        for _ in feed.batches(0, 0):
            pass
        steps, states = [], []
        for batch in feed.batches(1, 0):
            steps.append((batch.samples, batch.total, batch.value.tolist() if batch.samples else None))
            states.append(saved_and_read(feed.state()))
        found[name] = []
        for done in range(1, len(steps), 3 if workers else 1):
            again = feed_of(run, make(), sharded, workers, training=True)
            again.load(states[done - 1])
            assert str(again.state()) == str(states[done - 1])
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                rest = [
                    (b.samples, b.total, b.value.tolist() if b.samples else None)
                    for b in again.batches(1, done)
                ]
            if rest != steps[done:] or said.getvalue():
                found[name].append(f"{done}: {rest} instead of {steps[done:]}, {said.getvalue()}")
    return found


RESUMED = {
    "plain": (streams.Plain, None),
    "shuffled by the global generators": (streams.GlobalShuffle, None),
    "uneven parts": (streams.Short, None),
    "splits by the worker": (HuggingFace, "workers"),
    "splits itself": (streams.ByHand, True),
    "with a state": (streams.Position, None),
    "with a state, which draws besides": (streams.DrawsBetween, None),
    "with a state that is one sample late": (partial(streams.Position, late=1), None),
    "with a state that it cannot load": (streams.Unreadable, None),
    "splits by the worker, with a state": (streams.Shards, "workers"),
    "splits by the worker into uneven parts, with a state": (partial(streams.Shards, 8), None),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world_size", "workers", "keep"),
    [
        *[(1, 2, 2), (2, 0, 3)],
        *[pytest.param(*each, marks=pytest.mark.campaign) for each in ((1, 0, 1), (2, 2, 1), (4, 1, 1))],
    ],
)
def test_a_resume_at_any_step_gives_the_samples_that_are_left(world_size, workers, keep):
    for rank in run_ranks(resumed_at_each_step, world_size, RESUMED, workers, keep):
        assert rank == {name: [] for name in RESUMED}


def read_after_a_resume(workers: int, folder: str, late: int) -> list[int]:
    """The numbers that a data set with a state reads after a resume after its sixth step of eight."""
    stream_reader.KEEP = 2
    run = rankup.init(seed=1)
    first = feed_of(run, streams.Position(late=late), None, workers, training=True)
    batches = first.batches(0, 0)
    for _ in range(6):
        next(batches)
    path = Path(folder, str(run.world.rank))
    again = feed_of(run, streams.Position(str(path)), None, workers, training=True)
    again.load(saved_and_read(first.state()))
    seen = numbers(again.batches(0, 6))
    assert len(seen) == 12 // run.world.world_size
    return sorted({int(line) for line in path.read_text().split()})


@pytest.mark.repeated
@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_set_with_a_state_is_not_read_again(tmp_path, workers):
    for read in run_ranks(read_after_a_resume, 2, workers, str(tmp_path), 0):
        assert read[0] > 0
        assert read[-1] == LENGTH - 1


def test_a_state_that_leads_to_other_samples_is_not_used(tmp_path):
    for read in run_ranks(read_after_a_resume, 2, 0, str(tmp_path), 1):
        assert read == list(range(LENGTH))


def left_and_continued(workers: int) -> list[list[int]]:
    """Two passes, the first of which is left and goes on in the same process, with workers that stay alive."""
    run = rankup.init(seed=1)
    feed = feed_of(run, streams.Shards(), "workers", workers, training=True, persistent_workers=workers > 0)
    batches = feed.batches(0, 0)
    seen = [next(batches).value.tolist() for _ in range(3)]
    batches.close()
    seen += [batch.value.tolist() for batch in feed.batches(0, 3)]
    held = [sum(seen, []), numbers(feed.batches(1, 0))]
    feed._loader._iterator = None
    return held


@pytest.mark.repeated
@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_that_is_left_goes_on_in_the_same_process(workers):
    ranks = run_ranks(left_and_continued, 2, workers)
    for epoch in range(2):
        assert sorted(sum((rank[epoch] for rank in ranks), [])) == list(range(LENGTH))


def resumed(dataset, workers_before: int, workers: int, capsys) -> str:
    """What is said if the second pass over ``dataset`` is resumed in its middle."""
    run = rankup.init(seed=1)
    before = feed_of(run, dataset(), False, workers_before, training=True)
    for _ in before.batches(0, 0):
        pass
    for _ in zip(range(2), before.batches(1, 0), strict=False):
        pass
    again = feed_of(run, dataset(), False, workers, training=True)
    again.load(before.state())
    for _ in again.batches(1, 2):
        pass
    for _ in again.batches(2, 0):
        pass
    return capsys.readouterr().err


def test_a_resume_of_another_order_says_that_samples_are_seen_twice(capsys):
    said = resumed(streams.ForgetsItsOrder, 0, 0, capsys)
    assert said.count("warning: this epoch is resumed after its step 2") == 1
    assert "does not give the same samples again" in said


def test_a_resume_with_other_loader_workers_says_that_samples_are_seen_twice(capsys):
    said = resumed(streams.Plain, 0, 2, capsys)
    assert said.count("another number of processes or loader workers") == 1


def test_a_resume_on_other_processes_says_that_samples_are_seen_twice(capsys):
    run = rankup.init(seed=1)
    feed = feed_of(run, streams.Plain(), None, 0, training=True)
    feed.load(None)
    seen = numbers(feed.batches(0, 1))
    assert "another number of processes or loader workers" in capsys.readouterr().err
    assert seen == list(range(6, LENGTH))


class Killed(Exception):
    """In place of a kill."""


def trained(folder: str, make, workers: int, stop: int) -> list[list[int]]:
    """The samples of each step of two epochs, by a training that saves after each third step."""
    stream_reader.KEEP = 2
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        run = rankup.init(
            seed=1, snapshots=rankup.Snapshots(directory=folder, every="3 steps", asynchronous=False)
        )
        options = {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}
        dataset = make()  # a variable whose attributes change
        model, opt, data = run.prepare(
            torch.nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=1e-4), dataset, global_batch=6, **options
        )
        seen = []
        with contextlib.suppress(Killed):
            for x in run.steps(data, epochs=2):
                seen.append(x.tolist() if run.batch.samples else [])
                model(x.float()[:, None]).mean().backward()
                opt.step()
                opt.zero_grad()
                if len(seen) == stop:
                    raise Killed
    assert "this epoch is resumed" not in said.getvalue()
    return seen


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("make", "world_size", "workers"),
    [
        (streams.GlobalShuffle, 2, 2),
        (streams.Shards, 2, 0),
        (streams.CountsPasses, 2, 0),
        *(
            pytest.param(*each, marks=pytest.mark.campaign)
            for each in (
                (streams.GlobalShuffle, 1, 2), (streams.GlobalShuffle, 2, 0),
                (streams.Shards, 1, 2), (streams.Shards, 2, 2), (streams.CountsPasses, 1, 0),
            )
        ),
    ],
)  # fmt: skip
def test_a_training_that_is_killed_goes_on_with_the_samples_that_are_left(
    tmp_path, make, world_size, workers
):
    whole = run_ranks(trained, world_size, str(tmp_path / "whole"), make, workers, -1)
    first = run_ranks(trained, world_size, str(tmp_path / "parts"), make, workers, 14)
    later = run_ranks(trained, world_size, str(tmp_path / "parts"), make, workers, -1)
    for expected, before, after in zip(whole, first, later, strict=True):
        assert before == expected[:14]
        assert after == expected[12:]


# ---------------------------------------------------------------- around a pass


def model_generators() -> bool:
    run = rankup.init(seed=1)
    np.random.seed(3)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    feed = feed_of(run, streams.GlobalShuffle(), None, 0, training=True, collate_fn=torch.stack)
    for _ in feed.batches(0, 0):
        pass
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    return torch.equal(before[0], after[0]) and before[1:] == after[1:]


def test_reading_a_stream_leaves_the_models_generators_alone():
    assert run_ranks(model_generators, 2) == [True, True]


def evaluation(workers: int) -> tuple[int, int, int]:
    run = rankup.init(seed=1)
    options = {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}
    whole = sum(len(x) for x in run.batches(HuggingFace(), global_batch=6, **options))
    part = 0
    for x in run.batches(HuggingFace(), global_batch=6, **options):
        part += len(x)
        if run.world.rank == 0:
            break  # the others go on to the end
    return run.sum(whole), run.sum(part), torch.is_grad_enabled()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_evaluation_that_one_rank_leaves_holds_up_nobody(workers):
    for whole, part, gradients in run_ranks(evaluation, 2, workers):
        assert (whole, part, gradients) == (LENGTH, 3 + LENGTH // 2, True)


class WrongLength(HuggingFace):
    def __len__(self) -> int:
        return 2 * LENGTH


def test_a_length_that_was_not_handed_out_is_warned_of():
    run = rankup.init(seed=1)
    feed = feed_of(run, WrongLength(), None, 2, training=False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert len(numbers(feed.batches(0, 0))) == LENGTH
    assert any("says that it has 96 samples, but 48 were handed out" in str(w.message) for w in said)


# ---------------------------------------------------------------- the comparison


def starts(*first: str, workers: int = 1, asked: bool = True) -> list[StreamStart]:
    ranks = len(first) // workers
    return [
        StreamStart(Reader(i // workers, ranks, i % workers, workers), asked, tuple(begin))
        for i, begin in enumerate(first)
    ]


def test_few_shards_are_spread_over_ranks_first():
    readers = [Reader(rank, 3, worker, 2) for rank in range(3) for worker in range(2)]
    assert sorted(reader.number for reader in readers) == list(range(6))
    assert {reader.rank for reader in readers if reader.number < 3} == {0, 1, 2}


def test_equal_samples_prove_nothing():
    """Constant data begins alike everywhere, split or not: who asks for its number is believed."""
    check_starts(starts("aaaa", "aaaa"), "workers")
    with pytest.raises(RankupError, match="rank 0 and rank 1 would hand out the same samples"):
        check_starts(starts("abab", "abab"), "workers")


def test_a_data_set_that_asks_on_one_reader_only_is_refused():
    one, other = starts("abcd", "abcd", workers=2)
    with pytest.raises(RankupError, match="asks only one of them"):
        check_starts([one, other._replace(asked=False)], None)


def test_the_end_of_a_pass_says_how_many_are_missing():
    ends = [StreamEnd(Reader(rank, 2, 0, 1), False, 48, "x") for rank in range(2)]
    check_pass(ends, 48, None, False)
    with pytest.raises(RankupError, match="48 samples, and 46 were handed out over all ranks: 2 are missing"):
        check_pass(ends, 46, None, False)


@pytest.mark.parametrize("value", ["worker", 1, "true", 0])
def test_a_bad_declaration_is_one_error(value):
    with pytest.raises(RankupError, match="is not valid"):
        check_sharded(value)
