"""Each sample of a stream once over all ranks and workers, whoever splits it; or an error before the first step."""

from __future__ import annotations

import random
import warnings
from functools import partial

import numpy as np
import pytest
import streams
import torch
from streams import LENGTH, feed_of, numbers, passes
from torch.utils.data import DataLoader

import rankup
from ranks import run_ranks
from rankup.errors import RankupError
from rankup.runtime.data.stream_pass import StreamEnd, check_pass
from rankup.runtime.data.stream_split import Reader, Split, StreamStart, check_sharded, decide

pytestmark = pytest.mark.filterwarnings("ignore:an IterableDataset has no order")

WebDataset, HuggingFace = streams.WebDataset, streams.HuggingFace
# The way out of each kind of stream on several ranks: seen once, or the error.
ONCE = {
    "plain": (streams.Plain, None),
    "shuffled by the global generators": (streams.GlobalShuffle, None),
    "shuffled by the worker's seed": (streams.SeedShuffle, None),
    "its own iterator": (streams.Once, None),
    "Hugging Face": (HuggingFace, None),
    "Hugging Face, one shard": (partial(HuggingFace, 1), None),
    "Hugging Face, split by node": (streams.by_node, True),
    "WebDataset, no node splitter": (partial(WebDataset, nodes=False, workers=True), None),
    "WebDataset, no splitter at all": (partial(WebDataset, nodes=False, workers=False), None),
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
        "streams-unclear",
    ),
    "its own iterator, by worker": (streams.OnceByWorker, None, "streams-unclear"),
    "by hand": (streams.ByHand, None, "streams-differ"),
    "by rank": (streams.ByRank, None, "streams-differ"),
    "asks late": (streams.AsksLate, None, "stream-miscounted"),
    "plain, declared True": (streams.Plain, True, "streams-repeat"),
    "own shuffle, declared workers": (streams.OwnShuffle, "workers", "streams-differ"),
}


@pytest.mark.parametrize(
    ("world_size", "workers"),
    [(1, 0), (1, 2), pytest.param(2, 0, marks=pytest.mark.campaign), (3, 0), (3, 2)],
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


@pytest.mark.parametrize(("world_size", "workers"), [(2, 0), (3, 2)])
def test_what_would_lose_or_double_samples_is_refused_on_all_ranks(world_size, workers):
    cases = {name: case[:2] for name, case in REFUSED.items()}
    for rank in run_ranks(passes, world_size, cases, workers):
        assert rank == {name: case[2] for name, case in REFUSED.items()}


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


def from_each_step(steps: int) -> list[list[int]]:
    """This rank's samples of each step, read from each step on. The first rank has one sample more than the others."""
    run = rankup.init(seed=1)
    feed = feed_of(run, streams.Short(), None, 0, training=True)
    return [[batch.samples for batch in feed.batches(0, start)] for start in range(steps)]


def test_a_resume_after_the_end_of_one_ranks_part_goes_on():
    ranks = run_ranks(from_each_step, 3, 2)
    assert [rank[0] for rank in ranks] == [[2, 1], [2, 0], [2, 0]]
    assert [rank[1] for rank in ranks] == [[1], [0], [0]]


def resumed(dataset, workers_before: int, workers: int, capsys) -> str:
    """What is said if the second pass over ``dataset`` is resumed in its middle."""
    run = rankup.init(seed=1)
    before = feed_of(run, dataset(), False, workers_before, training=True)
    for _ in before.batches(0, 0):
        pass
    for _ in zip(range(2), before.batches(1, 0), strict=False):
        pass
    opening = before.opening
    again = feed_of(run, dataset(), False, workers, training=True)
    again.resume(opening)
    for _ in again.batches(1, 2):
        pass
    for _ in again.batches(2, 0):
        pass
    return capsys.readouterr().err


@pytest.mark.parametrize(("before", "now"), [(0, 0), (2, 2), (0, 1)])
def test_a_resume_that_skips_what_was_seen_says_nothing(before, now, capsys):
    assert resumed(streams.GlobalShuffle, before, now, capsys) == ""


def test_a_resume_of_another_order_says_that_samples_are_seen_twice(capsys):
    said = resumed(streams.ForgetsItsOrder, 0, 0, capsys)
    assert said.count("warning: this epoch is resumed after its step 2") == 1
    assert "it begins with other samples than before" in said


def test_a_resume_with_other_loader_workers_says_that_samples_are_seen_twice(capsys):
    said = resumed(streams.Plain, 0, 2, capsys)
    assert said.count("another number of processes or loader workers") == 1


def test_a_resume_on_other_processes_says_that_samples_are_seen_twice(capsys):
    run = rankup.init(seed=1)
    feed = feed_of(run, streams.Plain(), None, 0, training=True)
    feed.resume(None)
    for _ in feed.batches(0, 1):
        pass
    assert "another number of processes or loader workers" in capsys.readouterr().err


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


# ---------------------------------------------------------------- the decision


def looks(*first: str, workers: int = 1, **fields) -> list[StreamStart]:
    ranks = len(first) // workers
    return [
        StreamStart(
            Reader(i // workers, ranks, i % workers, workers), fields.get("asked", True), tuple(begin)
        )
        for i, begin in enumerate(first)
    ]


def test_few_shards_are_spread_over_ranks_first():
    readers = [Reader(rank, 3, worker, 2) for rank in range(3) for worker in range(2)]
    assert sorted(reader.number for reader in readers) == list(range(6))
    assert {reader.rank for reader in readers if reader.number < 3} == {0, 1, 2}


def test_equal_samples_prove_nothing():
    """Constant data begins alike everywhere, split or not: who asks for its number is believed."""
    assert decide(looks("aaaa", "aaaa"), "workers") is Split.OWN
    assert decide(looks("abcd", "abcd"), "workers") is Split.STRIPE
    assert (
        decide(looks("abcd", "abcd", "efgh", "efgh", workers=2, asked=False), "ranks") is Split.OVER_WORKERS
    )


def test_the_end_of_a_pass_says_how_many_are_missing():
    ends = [StreamEnd(Reader(rank, 2, 0, 1), 48, "x", False) for rank in range(2)]
    check_pass(Split.STRIPE, ends, 48, None)
    with pytest.raises(RankupError, match="48 samples, and 46 were handed out over all ranks: 2 are missing"):
        check_pass(Split.STRIPE, ends, 46, None)


@pytest.mark.parametrize("value", ["worker", 1, "true", 0])
def test_a_bad_declaration_is_one_error(value):
    with pytest.raises(RankupError, match="is not valid"):
        check_sharded(value)
