"""Whether all ranks have the same data: they divide it among themselves, so different data is a silent error.

Two data sets are compared by their length and a few samples. These are fetched as in the training, with the random
numbers of the sample, and twice: a sample that differs between the two is not compared. If the loader has workers, one
of them fetches: a file that the data set opens must not be open in this process before it forks.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple
from weakref import WeakSet

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from rankup.errors import RankupError
from rankup.runtime.checkpointing.attributes import others, plain
from rankup.runtime.checkpointing.carried.messages import warn
from rankup.runtime.data.loader_options import loader_options
from rankup.runtime.data.resident import ResidentData
from rankup.runtime.data.sample_rng import KeyedFetch
from rankup.runtime.distributed.control import Control
from rankup.runtime.tracing.digest import digest

# So many data sets of one type are compared: a script may make a new one for each evaluation.
LOOKED_AT = 8
_DEPTH = 4  # of data sets in each other


class DataIdentity(NamedTuple):
    """``length`` is None for a stream, which has no sample numbers; ``samples``: number → digest, without samples that
    are not reproducible. ``counted``: attributes of the data set on which its samples depend, and which move
    as it is read."""

    length: int | None
    samples: dict[int, str]
    counted: tuple[str, ...] = ()

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
    fetch = _Digests(data, seed)
    places: tuple[str, ...] = ()
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
        counted = [(thing, _values(thing), _rest(thing)) for thing in _in_each_other(data)]
        found = [fetch[number] for number in numbers]
        # If more of it has changed, the data set keeps what it has read, and a flag says so.
        counted = [(thing, values, _values(thing)) for thing, values, rest in counted if _rest(thing) == rest]
        moved = tuple(name for _, was, now in counted for name in was if was[name] != now.get(name))
        again = set()
        for _ in range(2 if moved and None in found else 0):
            _put_back(counted)
            again.add(fetch.digest_of(numbers[-1]))
        _put_back(counted)
        places = moved if len(again) == 1 else ()
    samples = {n: text for n, text in zip(numbers, found, strict=True) if text is not None}
    return DataIdentity(length, samples, places)


def _in_each_other(data: Any) -> list[Any]:
    """A data set and those in it, as in a Subset."""
    found: list[Any] = []
    while hasattr(data, "__dict__") and len(found) < _DEPTH:
        found.append(data)
        data = vars(data).get("dataset")
    return found


def _values(thing: object) -> dict[str, Any]:
    """Its numbers and texts: a place in a table, which moves with each sample that is read."""
    return {name: value for name, value in vars(thing).items() if type(value) in (bool, int, float, str)}


def _put_back(counted: list[Any]) -> None:
    for thing, values, _ in counted:
        vars(thing).update(values)


def _rest(thing: object) -> Any:
    """What tells whether anything else of it has changed."""
    simple = _values(thing)
    marks = {name: mark for name, mark in plain(thing).items() if name not in simple}
    return list(vars(thing)), marks, others(thing, ())


class _Digests(Dataset[Any]):
    """Sample number → digest, or None if the sample is different each time."""

    def __init__(self, data: Any, seed: int) -> None:
        # A data set may draw a split from its own generator, once, when its first sample is fetched.
        self._fetch = _FetchOne(data, _one, seed, sample_rng=True, reseed_held=False)

    def __getitem__(self, number: int) -> str | None:
        once, again = self.digest_of(number), self.digest_of(number)
        return once if once == again else None

    def digest_of(self, number: int) -> str:
        try:
            return digest(_readable(self._fetch[0, [number], [number]]))
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
    """Of one run: compares each data set over ranks, once."""

    def __init__(self, seed: int, control: Control | None, *, warns: bool) -> None:
        self._seed = seed
        self._control = control
        self._warns = warns
        self._known: WeakSet[Any] = WeakSet()
        self._looked: Counter[type] = Counter()

    def check(self, data: Any, loader: Mapping[str, Any]) -> None:
        """RankupError ``data-differ`` if ranks have different data. A collective in the first calls with ``data``.
        Streams are not compared."""
        if self._control is None or isinstance(data, (IterableDataset, DataLoader)):
            return
        if self._seen(data):
            return
        everyone = self._control.gather("the comparison of the data", identify(data, self._seed, loader))
        first = everyone[0]
        if first.counted and self._warns:
            warn(
                f"samples of {type(data).__name__} depend on how many were read before ({', '.join(first.counted)}): "
                "each rank reads its own share, so they are other samples than in one process; make a sample from its "
                "number"
            )
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
        hint="make the data after rankup.init(), which seeds all ranks alike, or with a seed of your own; samples that "
        "each rank has of its own go into an IterableDataset with sharded=True",
        exit_code=1,
    )
