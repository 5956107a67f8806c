"""Whether all ranks have the same data: they divide it among themselves, so different data is a silent error.

Two data sets are compared by their length and three samples, when they are prepared and at the beginning of each epoch:
a script may shuffle a list or draw rows in between. With them goes the order of the epoch that a sampler of the script
gives, since the script may change that as well. The samples are fetched as in the training, with the random numbers of
the sample, and twice: a sample that differs between the two is not compared. They are fetched from a shallow copy: what
the data set counts as it is read stays as it was. If the loader has workers, one of them fetches: a file that the data
set opens must not be open in this process before it forks.
"""

from __future__ import annotations

import copy
import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple
from weakref import WeakSet

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from rankup.errors import RankupError
from rankup.runtime.data.batches import DataFeed, sampled_order
from rankup.runtime.data.loader_options import loader_options
from rankup.runtime.data.resident import ResidentData
from rankup.runtime.data.sample_rng import KeyedFetch
from rankup.runtime.digest import digest
from rankup.runtime.distributed.control import Control, same_on_all

# So many data sets of one type are compared: a script may make a new one for each evaluation.
LOOKED_AT = 8
_DEPTH = 4  # of data sets in each other


class DataIdentity(NamedTuple):
    """``length`` is None for a stream, which has no sample numbers; ``samples``: number → digest, without those that
    are different each time (``unlike``)."""

    length: int | None
    samples: dict[int, str]
    unlike: tuple[int, ...] = ()

    def __str__(self) -> str:
        """A short digest of all of it."""
        return hashlib.sha256(repr((self.length, sorted(self.samples.items()))).encode()).hexdigest()[:16]


def identify(data: Any, seed: int, loader: Mapping[str, Any]) -> DataIdentity:
    """Of any data that ``Run.prepare`` takes; ``loader`` are the DataLoader's arguments. Moves no random generator."""
    if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
        return DataIdentity(None, {})
    length = len(data)
    numbers = sorted({0, length // 2, length - 1}) if length else []
    if isinstance(data, ResidentData):
        return DataIdentity(length, {n: digest([column[n] for column in data.columns]) for n in numbers})
    fetch = _Digests(_copied(data), seed)
    if loader.get("num_workers", 0):
        options = loader_options(dict(loader), torch.device("cpu"))
        found = list(
            DataLoader(
                fetch,
                batch_size=None,
                sampler=numbers,
                num_workers=1,
                generator=torch.Generator(),
                worker_init_fn=options["worker_init_fn"],
                multiprocessing_context=options["multiprocessing_context"],
            )
        )
    else:
        found = [fetch[number] for number in numbers]
    texts = dict(zip(numbers, found, strict=True))
    same = {number: text for number, text in texts.items() if text is not None}
    return DataIdentity(length, same, tuple(number for number in numbers if number not in same))


def _copied(data: Any, depth: int = _DEPTH) -> Any:
    """A shallow copy of a data set and of those in it, as in a Subset."""
    try:
        copied = copy.copy(data)
        inner = vars(copied).get("dataset")
        if inner is not None and depth:
            vars(copied)["dataset"] = _copied(inner, depth - 1)
    except Exception:  # it cannot be copied, or has no attributes
        return data
    return copied


class _Digests(Dataset[Any]):
    """Sample number → digest, or None if the sample is different each time."""

    def __init__(self, data: Any, seed: int) -> None:
        # A data set may draw a split from its own generator, once, when its first sample is fetched: not seeded then.
        self._first = _FetchOne(data, _one, seed, sample_rng=True, reseed_held=False)
        self._fetch = _FetchOne(data, _one, seed, sample_rng=True)

    def __getitem__(self, number: int) -> str | None:
        once, again = self.digest_of(number, self._first), self.digest_of(number, self._fetch)
        if once != again:  # it may draw from its own generator, whose place ranks need not share
            once = self.digest_of(number, self._fetch)
        return once if once == again else None

    def digest_of(self, number: int, fetch: KeyedFetch) -> str:
        try:
            return digest(_readable(fetch[0, [number], [number]]))
        except (
            Exception
        ) as error:  # the loop will raise it; if only one rank cannot read, that is a difference
            return type(error).__name__


class _FetchOne(KeyedFetch):
    """A batch of one sample will do, from a data set that hands out whole batches."""

    def _sample(self, sample: int) -> list[Any]:
        fetched = self._fetch([sample])
        return fetched if isinstance(fetched, list) else [fetched]


def _one(samples: list[Any]) -> Any:
    return samples[0]


def _readable(value: Any) -> Any:
    """Arrays and images, of libraries that are not imported here, as bytes."""
    if isinstance(value, (torch.Tensor, str, bytes, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _readable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_readable(item) for item in value]
    return value.tobytes() if callable(getattr(value, "tobytes", None)) else value


class SameDataCheck:
    """Of one run: compares each data set over ranks as it is given, and those of the training in each epoch."""

    def __init__(self, seed: int, control: Control | None) -> None:
        self._seed = seed
        self._control = control
        self._known: WeakSet[Any] = WeakSet()
        self._looked: Counter[type] = Counter()
        # Of each feed: its data set, the loader's arguments, and in how many epochs it was looked at.
        self._watched: list[tuple[DataFeed, Any, Mapping[str, Any], list[int]]] = []

    def watch(self, feed: DataFeed, data: Any, loader: Mapping[str, Any]) -> None:
        """A training goes over ``feed``."""
        if not isinstance(data, IterableDataset) and hasattr(data, "__len__"):
            self._watched.append((feed, data, dict(loader), [0]))

    def check_epoch(self, feed: DataFeed) -> None:
        """RankupError ``data-differ``, ``sampler-differs`` or ``data-grows`` at the beginning of an epoch, or of what
        is left of one. A collective."""
        for other, data, loader, looks in self._watched:
            if other is not feed:
                continue
            looks[0] += 1
            if (before := feed.cut["length"]) is not None and before != len(data):
                raise RankupError(
                    "data-grows",
                    f"{type(data).__name__} had {before} samples when it was prepared, and has {len(data)} now",
                    hint="an epoch is an order of the samples that it had: prepare the larger data set by another call "
                    "of run.prepare, and train on it in a loop of its own",
                    exit_code=1,
                )
            # With workers the samples are fetched in a process that is forked for this.
            looked = not (loader.get("num_workers") and looks[0] & (looks[0] - 1))
            if looked or sampled_order(feed) is not None:
                self._compare(data, loader, feed, looked=looked)

    def check(self, data: Any, loader: Mapping[str, Any]) -> None:
        """RankupError ``data-differ`` if ranks have different data. A collective in the first calls with ``data``.
        Streams are not compared."""
        if not isinstance(data, (IterableDataset, DataLoader)) and not self._seen(data):
            self._compare(data, loader)

    def _compare(
        self, data: Any, loader: Mapping[str, Any], feed: DataFeed | None = None, *, looked: bool = True
    ) -> None:
        """``feed``: an epoch of it begins. ``looked``: whether samples are fetched."""
        if self._control is None:
            return
        what = "the comparison of the data"
        mine = identify(data, self._seed, loader) if looked else DataIdentity(None, {})
        sampled = None if feed is None else sampled_order(feed)
        order = "" if feed is None or sampled is None else sampled.digest(feed.position.epoch)
        if same_on_all(self._control, what, {**mine._asdict(), "order": order}):
            return
        everyone = self._control.gather(what, mine)
        first = everyone[0]
        others = [rank for rank, other in enumerate(everyone) if other.length != first.length]
        if others:
            raise _differ(
                f"it has {first.length} samples on rank 0, {everyone[others[0]].length} on rank {others[0]}"
            )
        for number, text in first.samples.items():
            others = [rank for rank, other in enumerate(everyone) if other.samples.get(number, text) != text]
            if others:
                ranks = ", ".join(map(str, others[:3])) + (", …" if others[3:] else "")
                raise _differ(f"sample {number} on rank 0 is another one than on rank {ranks}")
        if feed is not None and sampled is not None:
            sampled.check_same(self._control, feed.position.epoch)

    def _seen(self, data: Any) -> bool:
        """The same answer on all ranks, if they ask about the same data sets in the same order."""
        try:
            if data in self._known:
                return True
            self._known.add(data)
        except TypeError:  # it cannot be hashed, or referred to weakly
            pass
        self._looked[type(data)] += 1
        return self._looked[type(data)] > LOOKED_AT


def _differ(how: str) -> RankupError:
    return RankupError(
        "data-differ",
        f"the data set is not the same on all ranks: {how}; each rank would take its share of another one",
        hint="make the data between rankup.init(), which seeds all ranks alike, and run.prepare, after which each rank "
        "draws numbers of its own; or with a seed of your own. Change it alike on all ranks (by epoch.index). Samples "
        "that each rank has of its own go into an IterableDataset with sharded=True",
        exit_code=1,
    )
