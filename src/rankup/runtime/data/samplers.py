"""The order of a user's ``sampler=`` or ``batch_sampler=``: by weight, by length, of a subset.

Each rank runs the whole sampler, with the global generators (and the sampler's own) seeded from (seed, epoch). So its
list is the same on all ranks, for any number of ranks and after a resume. It is the order of the epoch, and each rank
takes its share of it. A batch of a batch sampler is a global batch.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from rankup.errors import RankupError
from rankup.runtime.data.generators import Generators
from rankup.runtime.data.order import Listed, Sequential, StepPlan, all_rows, cuts
from rankup.runtime.distributed.control import Control
from rankup.runtime.seed import derive
from rankup.snapshots.tensor_checksum import as_bytes

_PIECE = 2**16  # what a sampler gives, at a time
# A sampler that gives more samples than this many times the length of the data set is assumed to be endless.
ENDLESS = 100


class SampledOrder:
    """``batches``: the sampler gives lists of numbers, each a global batch; else single numbers."""

    def __init__(
        self,
        sampler: Iterable[Any],
        length: int,
        global_batch: int,
        seed: int,
        *,
        batches: bool,
        drop_last: bool,
    ) -> None:
        self._sampler = sampler
        self._length = length
        self._global_batch = global_batch
        self._seed = seed
        self._batches = batches
        self._drop_last = drop_last
        self._what = "batch_sampler" if batches else "sampler"
        self._drawn: tuple[int, StepPlan] | None = None
        self._digest: tuple[int, str] | None = None
        self._set: set[tuple[int, str]] = set()  # attributes that set_epoch sets, by the id of their sampler

    @property
    def kind(self) -> int:
        """A number for the type of the sampler, by which a resume tells one from another."""
        name = f"{self._what} {type(self._sampler).__qualname__}"
        return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "little")

    def check_repeated(self, epoch: int, digest: str) -> None:
        """An error if the order of an epoch is not the one that a state in the middle of it was taken in."""
        if self.digest(epoch) != digest:
            raise RankupError(
                "sampler-order-changed",
                f"the {self._what} ({type(self._sampler).__name__}) gives another order of epoch {epoch + 1} than "
                "before the interruption: some samples would be seen twice, and others not at all",
                hint="register what it depends on, and change that after the inner loop only; here, go on from an "
                "older snapshot that was taken between two epochs, or begin a new run",
                exit_code=1,
            )

    def check(self, control: Control | None) -> None:
        """An error for a sampler whose order does not follow from the seed and the epoch. A collective."""
        shards = [each for each in self._chain() if hasattr(each, "num_replicas")]
        if shards:
            raise RankupError(
                "sampler-shards",
                f"{self._what}= is a {type(shards[0]).__name__}, which splits the data over ranks: rankup does that",
                hint="leave it out, or give the sampler that orders the whole data set",
            )
        first, second = self._draw(0), self._draw(0)
        if _digest(first) != _digest(second):
            raise RankupError(
                "sampler-has-state",
                f"the {self._what} ({type(self._sampler).__name__}) gives another order when it is run again with the "
                "same seed: a resume and other ranks could not repeat it",
                hint="draw from the global generators (torch, random, numpy), from a torch.Generator in its attribute "
                "`generator`, or by the epoch that set_epoch gives",
            )
        self._drawn = (0, first)
        if control is not None:
            self.check_same(control, 0)

    def check_same(self, control: Control, epoch: int) -> None:
        """An error if ranks have different orders of an epoch. A collective."""
        everyone = control.gather("the order of an epoch", (self.digest(epoch), len(self.plan(epoch).order)))
        first = everyone[0]
        for rank, other in enumerate(everyone):
            if other[0] != first[0]:
                lengths = "" if other[1] == first[1] else f" ({first[1]} and {other[1]} samples)"
                raise RankupError(
                    "sampler-differs",
                    f"the {self._what} ({type(self._sampler).__name__}) gives rank 0 and rank {rank} different orders "
                    f"of epoch {epoch + 1}{lengths}: each would take its share of another one, so that some samples "
                    "are trained twice and others not at all",
                    hint="build and change it alike on all ranks: the same weights, lengths and seed. Behind "
                    "run.prepare each rank draws numbers of its own: draw from random.Random(seed) or a "
                    "torch.Generator with a seed, and choose by what is equal on all ranks (run.sum, run.mean)",
                    exit_code=1,
                )

    def plan(self, epoch: int) -> StepPlan:
        if self._drawn is None or self._drawn[0] != epoch:
            self._drawn = (epoch, self._draw(epoch))
        return self._drawn[1]

    def digest(self, epoch: int) -> str:
        """Of the order of an epoch: a resume must find the same."""
        if self._digest is None or self._digest[0] != epoch:
            self._digest = (epoch, _digest(self.plan(epoch)))
        return self._digest[1]

    def derived(self) -> set[Any]:
        """What follows from seed and epoch in the sampler: ids of its generators, (id, name) of attributes."""
        held = [getattr(each, "generator", None) for each in self._chain()]
        return {*(id(each) for each in held if isinstance(each, torch.Generator)), *self._set}

    def _draw(self, epoch: int) -> StepPlan:
        key = derive(self._seed, "sampler", epoch)
        for each in self._chain():
            if isinstance(generator := getattr(each, "generator", None), torch.Generator):
                generator.manual_seed(key)
            if callable(set_epoch := getattr(each, "set_epoch", None)):
                before = dict(getattr(each, "__dict__", {}))
                set_epoch(epoch)
                now = getattr(each, "__dict__", {})
                self._set |= {(id(each), name) for name in now if before.get(name) is not now[name]}
        with Generators(key).in_use():
            order, sizes = self._read(self._bounded(iter(self._sampler)))
        starts: Sequence[int] = list(itertools.accumulate(sizes, initial=0))
        if not self._batches:
            starts = cuts(len(order), self._global_batch, drop_last=self._drop_last)
        if len(starts) < 2 or any(a == b for a, b in itertools.pairwise(starts)):
            raise RankupError(
                "empty-dataset",
                f"the {self._what} gives {'no batch, or an empty one' if self._batches else 'too few samples'} in "
                f"epoch {epoch}: {len(order)} samples",
                exit_code=1,
            )
        # The same sample may be drawn several times, each time with other random numbers.
        return StepPlan(Listed(order), starts, Sequential(len(order)))

    def _read(self, drawn: Iterator[Any]) -> tuple[torch.Tensor, list[int]]:
        """The numbers, and the sizes of the batches of a batch sampler. In pieces: a list of all would take several
        times the memory of the tensor."""
        pieces, sizes = [torch.empty(0, dtype=torch.int64)], []
        while some := list(itertools.islice(drawn, _PIECE)):
            if self._batches:
                sizes += [len(batch) for batch in some]
                some = [number for batch in some for number in batch]
            pieces.append(self._order(some))
        return torch.cat(pieces), sizes

    def _order(self, numbers: list[Any]) -> torch.Tensor:
        try:
            order = torch.tensor([int(number) for number in numbers], dtype=torch.int64)
        except (TypeError, ValueError):
            hint = "batches belong to batch_sampler=" if not self._batches else ""
            raise RankupError(
                "sampler-not-numbers", f"the {self._what} gives things that are not sample numbers", hint=hint
            ) from None
        if len(order) and (int(order.min()) < 0 or int(order.max()) >= self._length):
            raise RankupError(
                "sampler-out-of-range",
                f"the {self._what} gives sample numbers from {int(order.min())} to {int(order.max())}, and the data "
                f"set has {self._length}",
                hint="was it made for another data set?",
            )
        return order

    def _bounded(self, drawn: Iterator[Any]) -> Iterator[Any]:
        most, given = ENDLESS * max(self._length, 1000), 0
        for item in drawn:
            each = list(item) if self._batches and isinstance(item, Iterable) else item
            if self._batches and not isinstance(each, list):
                raise RankupError(
                    "sampler-not-numbers",
                    "the batch_sampler gives single numbers, not lists of them",
                    hint="sample numbers belong to sampler=, with global_batch=",
                )
            given += len(each) if self._batches else 1
            if given > most:
                raise RankupError(
                    "sampler-endless",
                    f"the {self._what} gives more than {most} samples in one epoch",
                    hint="an epoch must end: give the sampler a length",
                )
            yield each

    def _chain(self) -> Iterator[Any]:
        """The sampler, and those that it wraps."""
        seen: list[Any] = []
        each: Any = self._sampler
        while each is not None and not any(each is other for other in seen):
            seen.append(each)
            yield each
            each = getattr(each, "sampler", None)


def _digest(plan: StepPlan) -> str:
    digest = hashlib.sha256()
    for numbers in (all_rows(plan.order), torch.tensor([*plan.starts])):
        digest.update(as_bytes(numbers))
    return digest.hexdigest()
