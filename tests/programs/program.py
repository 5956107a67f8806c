"""What a program is: a training that real users write, once with rankup and once as the plain loop beside it.

``plain`` is torch alone, on one process, over the whole global batch. It takes one thing from rankup: the order of the
samples, as data. ``with_rankup`` runs on each rank. Both give what is to be equal, by name: weights, mostly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

import rankup
from rankup.runtime.data.order import all_rows
from rankup.runtime.data.sharding import Sharding

Result = dict[str, Any]

#: As the plain loop: within 1e-9 in fp64, on any number of ranks; and the same bits after a resume.
EQUAL = "equal"
#: Each rank draws its own numbers, or has its own batch statistics: only a resume on as many ranks gives the same bits.
OWN = "own"
#: An error of torch's, which says enough.
RAISED = "raised"
#: The strategy is not for this program, and nothing is promised.
NOT_FOR = "not for"


@dataclass(frozen=True)
class How:
    """How a program is run: ``none``, ``ddp``, ``fsdp`` or ``any-world``."""

    strategy: str
    #: Whether the program registers what it would lose (``Program.lost``).
    registers: bool = False

    def init(self, **options: Any) -> rankup.Run:
        """``rankup.init`` in fp64 with the strategy asked for. One process makes each of them ``none``."""
        if self.strategy == "any-world":
            options["exact"] = "any-world"
        elif self.strategy == "fsdp":
            options["strategy"] = "fsdp"
        return rankup.init(precision="fp64", **options)

    def update(self, run: rankup.Run, opt: Any, loss: torch.Tensor) -> None:
        """One step of a loop: in torch's own words where they are enough, else in rankup's."""
        if self.strategy == "any-world":
            run.backward(loss)
            run.step(opt)
        else:
            opt.zero_grad()
            loss.backward()
            opt.step()


def expect(**by_strategy: str) -> Mapping[str, str]:
    """What a program expects where it is not EQUAL: ``expect(ddp=OWN, any_world="not-any-world")``."""
    return {strategy.replace("_", "-"): expected for strategy, expected in by_strategy.items()}


class Program:
    """The docstring's first line is its row in the table of docs/explanation/exactness.md."""

    #: For a class that is not a program itself, but the common part of several.
    abstract: ClassVar[bool] = True
    #: What differs from EQUAL: by strategy, an error's code, OWN or NOT_FOR. ``none`` is one process.
    expected: ClassVar[Mapping[str, str]] = {}
    #: Whether it goes on from a snapshot as if nothing had been, and on another number of ranks as well.
    resumes: ClassVar[bool] = True
    #: What a resume would lose, so that it is the error ``state-lost``, unless ``How.registers``; "": nothing.
    lost: ClassVar[str] = ""
    moves: ClassVar[bool] = True
    epochs: ClassVar[int] = 3
    batch: ClassVar[int] = (
        6  # with 20 samples: uneven shares on 4 ranks, and empty ones in the last step on 3 and 4
    )

    def plain(self) -> Result:
        raise NotImplementedError

    def with_rankup(self, how: How) -> Result:
        raise NotImplementedError

    @classmethod
    def is_abstract(cls) -> bool:
        return bool(vars(cls).get("abstract", False))

    @classmethod
    def name(cls) -> str:
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()

    @classmethod
    def summary(cls) -> str:
        return (cls.__doc__ or "").strip().splitlines()[0].rstrip(".")

    @classmethod
    def resume(cls) -> str:
        """What a resume on as many ranks is: the same bits, or nothing that is promised."""
        if not cls.resumes:
            return ""
        return ("same bits" if cls.moves else "same bits, not elsewhere") + (
            ", once registered" if cls.lost else ""
        )

    @classmethod
    def expects(cls, strategy: str) -> str:
        return cls.expected.get(strategy, EQUAL)


def batches(
    length: int,
    global_batch: int,
    epoch: int,
    *,
    shuffle: bool = True,
    seed: int = 0,
    drop_last: bool = False,
) -> Iterator[torch.Tensor]:
    """The sample numbers of each global batch of an epoch, int64 (n,): the order as data, and the short last batch."""
    order = all_rows(Sharding(length, global_batch, 0, 1, seed, shuffle).order(epoch))
    if drop_last:
        order = order[: length // global_batch * global_batch]
    yield from torch.split(order, global_batch)


def weights(*models: nn.Module) -> Result:
    """Parameters and buffers of ``models``, whole, by name. A collective where they are sharded."""
    found: Result = {}
    for number, model in enumerate(models):
        inner = getattr(model, "module", model)
        assert isinstance(inner, nn.Module)
        for name, tensor in (*inner.named_parameters(), *inner.named_buffers()):
            found[f"{number}.{name}"] = whole(tensor)
    return found


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of all of a tensor, also where it is sharded."""
    full = tensor.detach()
    gather = getattr(full, "full_tensor", None)
    return (gather() if gather is not None else full).clone()


def points(samples: int = 20, width: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """A small regression: (samples, width) and (samples, 1), in fp64."""
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(samples, width, generator=generator, dtype=torch.float64)
    return x, (x.sin().sum(1, keepdim=True) * 1.5 + 0.3)


def classes(samples: int = 20, width: int = 4, kinds: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """A small classification: (samples, width) in fp64 and labels (samples,)."""
    x, _ = points(samples, width)
    return x, (x[:, :kinds]).argmax(1)


def perceptron(inputs: int = 4, outputs: int = 1, hidden: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))
