"""What several ranks hold must be the same on all of them. It is compared at each save by 64 numbers.

Of what ``n`` ranks hold, the first one adds -(n - 1) times the hash, and each of the others adds the hash. So the sum
over all ranks is zero if they agree. Only if it is not, ranks send what they have, of the names in one sum.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rankup.errors import RankupError

if TYPE_CHECKING:
    from rankup.snapshots.peers import Peers
    from rankup.snapshots.shards import Part

SUMS = 64
_BITS = 40  # of a hash: the sum over a million ranks still fits into 64 bits

REGISTERED, TENSOR, VALUE = range(3)  # kinds, in the order in which their differences are reported


@dataclass(frozen=True)
class Held:
    """One thing of this rank that ``holders`` have too. ``text`` is its value, or a checksum of it."""

    kind: int
    name: str
    part: Part | None
    text: str
    holders: Sequence[int]

    @property
    def place(self) -> int:
        """Which sum it is in. Those of a kind are together, so that its differences are reported first."""
        each = SUMS // 3
        return self.kind * each + _hash(self.name) % each

    def summand(self, rank: int) -> int:
        sign = 1 - len(self.holders) if rank == self.holders[0] else 1
        return sign * _hash(f"{self.kind} {self.name} {self.part} {self.text}") % (1 << _BITS)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=_BITS // 8).digest(), "big")


def summands(held: Iterable[Held], rank: int) -> list[int]:
    """What this rank adds to each sum."""
    found = [0] * SUMS
    for each in held:
        found[each.place] += each.summand(rank)
    return [each % (1 << _BITS) for each in found]


def check(sums: Sequence[int], held: Iterable[Held], peers: Peers, step: int) -> None:
    """Raises RankupError on all ranks if a sum is not zero; it names what differs. Only then a collective."""
    differing = [place for place, total in enumerate(sums) if total % (1 << _BITS)]
    if not differing:
        return
    told = peers.everyone.collect([each for each in held if each.place == differing[0]])

    def judge() -> None:
        if peers.world.is_main:
            raise _difference(told, step)

    peers.do(judge)


def _difference(told: Sequence[tuple[int, Sequence[Held]]], step: int) -> RankupError:
    texts: list[dict[str, str]] = []
    known: dict[tuple[str, Part | None], tuple[int, str]] = {}
    for rank, held in told:
        texts.append({each.name: each.text for each in held if each.kind == REGISTERED})
        for each in held:
            first, other = known.setdefault((each.name, each.part), (rank, each.text))
            if each.text != other and each.kind != REGISTERED:
                return (
                    _of_tensor(each, first, rank, step)
                    if each.kind == TENSOR
                    else _of_value(each, rank, other)
                )
    error = registered_differ(texts)
    assert error is not None
    return error


def _of_tensor(held: Held, first: int, rank: int, step: int) -> RankupError:
    return RankupError(
        "replicas-differ",
        f"{held.name} differs between rank {first} and rank {rank}: the snapshot of step {step} is not "
        "written; earlier snapshots are kept",
        hint="the ranks have trained different models: call the model that prepare returned, in every "
        "step; make the same manual changes to weights on all ranks",
        exit_code=1,
    )


def _of_value(held: Held, rank: int, other: str) -> RankupError:
    return RankupError(
        "ranks-differ",
        f"{held.name} is {held.text} on rank {rank}, {other} on another",
        hint="a rank has set it by a number of its own, such as a loss of its share of the test data: give "
        "all ranks the same one before the schedule's step, by run.meter.means(), run.mean or run.sum"
        if "/optimizer/" in held.name
        else "values that differ between ranks must be saved per rank",
        exit_code=1,
    )


def registered_differ(everyone: Sequence[Mapping[str, str]]) -> RankupError | None:
    """The error for the first registered thing whose text is not the same on all ranks; None without one."""
    for name in dict.fromkeys(name for texts in everyone for name in texts):
        first = everyone[0].get(name)
        for rank, texts in enumerate(everyone):
            if (other := texts.get(name)) == first:
                continue
            hidden = first is None or other is None or first.startswith("sha256:")
            shown = "" if hidden else f": {first} and {other}"
            root = re.split(r"[.\[]", name)[0]
            forget = "" if root == name else f", or run.forget({name.rpartition('.')[2]!r}) if it only prints"
            return RankupError(
                "ranks-differ",
                f"{name} (run.register) differs between rank 0 and rank {rank}{shown}",
                hint="compute it from values of all ranks (run.mean, run.sum, run.gather); prepare a module that is "
                "trained, run.prepare([model, module], …); or save each rank's own: "
                f"run.register({root}=…, per_rank=True){forget}",
                exit_code=1,
            )
    return None
