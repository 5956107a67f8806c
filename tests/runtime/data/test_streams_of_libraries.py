"""The streams of Hugging Face datasets and WebDataset themselves: each sample once, or the named error."""

from __future__ import annotations

import contextlib
import io
import tarfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from streams import LENGTH, feed_of, numbers, passes, saved_and_read

import rankup
from ranks import run_ranks
from rankup.runtime.data import stream_reader

pytestmark = pytest.mark.filterwarnings("ignore:an IterableDataset has no order")
SHARDS = 6


def needs(package: str) -> pytest.MarkDecorator:
    reason = f"{package} is not installed: pip install 'rankup[peers]'"
    return pytest.mark.skipif(find_spec(package) is None, reason=reason)


def generated(shards):
    for shard in shards:
        for number in range(shard * LENGTH // SHARDS, (shard + 1) * LENGTH // SHARDS):
            yield {"number": number}


def hugging_face(*, shards: int = SHARDS, shuffle: bool = False, by_node: bool = False):
    import os

    from datasets import IterableDataset
    from datasets.distributed import split_dataset_by_node

    parts = [list(range(SHARDS))] if shards == 1 else list(range(SHARDS))
    make = generated if shards > 1 else (lambda shards: generated(shards[0]))
    stream = IterableDataset.from_generator(make, gen_kwargs={"shards": parts})
    if shuffle:
        stream = stream.shuffle(seed=3, buffer_size=10)
    if by_node:
        stream = split_dataset_by_node(stream, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    return Numbers(stream)


class Numbers(torch.utils.data.IterableDataset):
    """The numbers alone, as the tests compare them."""

    def __init__(self, stream) -> None:
        self.stream = stream

    def set_epoch(self, epoch: int) -> None:
        if hasattr(self.stream, "set_epoch"):
            self.stream.set_epoch(epoch)

    @property
    def epoch(self):
        return getattr(self.stream, "epoch", None)

    def __iter__(self):
        for sample in self.stream:
            yield torch.tensor(int(sample["number"]))


@pytest.mark.slow
@needs("datasets")
@pytest.mark.parametrize(
    ("world_size", "workers"),
    [(2, 0), *(pytest.param(*each, marks=pytest.mark.campaign) for each in ((1, 2), (3, 2)))],
)
def test_hugging_face_streams(world_size, workers):
    cases = {
        "plain": (hugging_face, None),
        "shuffled": (partial(hugging_face, shuffle=True), None),
        "one shard": (partial(hugging_face, shards=1), None),
        "declared": (partial(hugging_face, shuffle=True), "workers"),
        "by node": (partial(hugging_face, by_node=True), True),
        "by node, not declared": (partial(hugging_face, by_node=True), None),
    }
    ranks = run_ranks(passes, world_size, cases, workers, 2, tuple(cases))
    refused = [rank.pop("by node, not declared") for rank in ranks]
    assert world_size == 1 or refused == ["streams-differ"] * world_size
    for name in ranks[0]:
        for number in range(3):  # two epochs and an evaluation
            seen = sum((rank[name][number] for rank in ranks), [])
            assert sorted(seen) == list(range(LENGTH)), (name, number)
    assert ranks[0]["shuffled"][0] != ranks[0]["shuffled"][1]


class Delegates(Numbers):
    """Hands on the state of the stream in it."""

    def state_dict(self):
        return self.stream.state_dict()

    def load_state_dict(self, state) -> None:
        self.stream.load_state_dict(state)


def itself(*, shuffle: bool):
    return hugging_face(shuffle=shuffle).stream


def in_another(*, shuffle: bool):
    return Delegates(itself(shuffle=shuffle))


def collated(samples):
    return torch.tensor([int(each["number"] if isinstance(each, dict) else each) for each in samples])


def resumed(make, shuffle: bool, workers: int) -> tuple[list[int], list[int], bool]:
    """What is left of a pass after its sixth step, the same after a resume, and whether the resume warned."""
    stream_reader.KEEP = 1
    run = rankup.init(seed=1)
    feed = feed_of(run, make(shuffle=shuffle), "workers", workers, training=True, collate_fn=collated)
    states, seen = [], []
    for batch in feed.batches(1, 0):
        seen.append(batch.value.tolist() if batch.samples else [])
        states.append(saved_and_read(feed.state()))
    assert any(mark["kept"] for mark in states[5]["marks"])
    again = feed_of(run, make(shuffle=shuffle), "workers", workers, training=True, collate_fn=collated)
    again.load(states[5])
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        rest = numbers(again.batches(1, 6))
    return sum(seen[6:], []), rest, "warning: this epoch is resumed" in said.getvalue()


@pytest.mark.repeated
@needs("datasets")
@pytest.mark.parametrize(("world_size", "workers"), [pytest.param(1, 0, marks=pytest.mark.campaign), (2, 2)])
@pytest.mark.parametrize(
    ("make", "shuffle"),
    [(itself, False), pytest.param(in_another, False, marks=pytest.mark.campaign), (itself, True)],
)
def test_a_hugging_face_stream_is_resumed_exactly(make, shuffle, world_size, workers):
    """Its state does not contain the buffer of a shuffle: then it is read again."""
    for whole, rest, warned in run_ranks(resumed, world_size, make, shuffle, workers):
        assert (rest, warned) == (whole, False)


@needs("datasets")
def test_a_state_that_is_wrong_and_cannot_be_undone_is_warned_of():
    [(whole, rest, warned)] = run_ranks(resumed, 1, in_another, True, 0)
    assert rest != whole
    assert warned


def shards_in(directory: Path) -> list[str]:
    paths = []
    for shard in range(SHARDS):
        path = directory / f"{shard}.tar"
        with tarfile.open(path, "w") as tar:
            for row in generated([shard]):
                text = str(row["number"]).encode()
                member = tarfile.TarInfo(f"{row['number']:04}.number")
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text))
        paths.append(str(path))
    return paths


def web_dataset(
    paths, *, nodes: bool, counted: bool = False, shuffle: int | None = None, seed: int | None = None
):
    import webdataset as wds

    split = wds.split_by_node if nodes else None
    stream = wds.WebDataset(paths, nodesplitter=split, shardshuffle=4, detshuffle=counted)
    return Numbers(stream.shuffle(shuffle, seed=seed) if shuffle else stream)


@pytest.mark.repeated
@needs("webdataset")
@pytest.mark.parametrize(
    ("world_size", "workers"), [pytest.param(1, 2, marks=pytest.mark.campaign), (2, 0), (3, 2)]
)
def test_web_datasets(tmp_path, world_size, workers):
    paths = shards_in(tmp_path)
    cases = {
        "worker splitter": (partial(web_dataset, paths, nodes=False), None),
        "both splitters": (partial(web_dataset, paths, nodes=True, counted=True), True),
        "counts its epochs": (partial(web_dataset, paths, nodes=False, counted=True), None),
        "shuffled with a seed": (partial(web_dataset, paths, nodes=False, shuffle=10, seed=1), None),
        "shuffled without": (partial(web_dataset, paths, nodes=False, shuffle=10), "workers"),
        "both splitters, not declared": (partial(web_dataset, paths, nodes=True), None),
    }
    if world_size == 1:
        del cases["both splitters, not declared"]
    ranks = run_ranks(passes, world_size, cases, workers, 2, tuple(cases))
    if world_size > 1:
        assert [rank.pop("both splitters, not declared") for rank in ranks] == ["streams-differ"] * world_size
    for name in ranks[0]:
        for number in range(3):
            seen = sum((rank[name][number] for rank in ranks), [])
            assert sorted(seen) == list(range(LENGTH)), (name, number)
