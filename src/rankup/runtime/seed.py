"""Seeds: one number from the user, and an independent one for every purpose, derived from it.

Weights are initialised with the same seed on every rank. Then each rank gets its own stream (dropout), and each sample,
too (augmentation), keyed on (seed, epoch, sample): neither the number of ranks nor the number of loader workers changes
a sample.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from rankup.world import ACCELERATORS


def derive(seed: int, *key: int | str) -> int:
    """A 63-bit seed for one purpose: equal keys give equal seeds, and any difference an unrelated one."""
    text = "/".join(str(part) for part in (seed, *key))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def seed_everything(seed: int) -> None:
    """Seed torch (all devices), Python, and NumPy where it is in use."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def rng_state() -> dict[str, Any]:
    """Every global random stream of this process, as tensors and plain values."""
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    for kind in ACCELERATORS:
        module: Any = torch.get_device_module(kind)
        # A call would create a context on the device, also in a training on the CPU.
        if module.is_initialized():
            state[kind] = module.get_rng_state_all()  # of all: dp computes on several
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, position, has_gauss, cached = numpy.random.get_state()
        state["numpy"] = (name, torch.from_numpy(keys.astype("int64")), position, has_gauss, cached)
    return state


def set_rng_state(state: dict[str, Any]) -> None:
    """Put back what ``rng_state`` gave."""
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    for kind in ACCELERATORS:
        module: Any = torch.get_device_module(kind)
        if kind in state and module.is_available():
            for device, held in zip(range(module.device_count()), state[kind], strict=False):
                module.set_rng_state(held, device)
    numpy = sys.modules.get("numpy")
    if "numpy" in state and numpy is not None:
        name, keys, position, has_gauss, cached = state["numpy"]
        numpy.random.set_state((name, keys.numpy().astype("uint32"), position, has_gauss, cached))


def generator_access(thing: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
    """The functions that get and set the state of a generator of torch's, Python's or NumPy's; None for another thing,
    and for one without a state."""
    if isinstance(thing, torch.Generator):
        return thing.get_state, thing.set_state
    if isinstance(thing, random.Random):
        return None if isinstance(thing, random.SystemRandom) else (thing.getstate, thing.setstate)
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and isinstance(thing, (numpy.Generator, numpy.BitGenerator)):
        bits = getattr(thing, "bit_generator", thing)
        return lambda: bits.state, partial(setattr, bits, "state")
    if numpy is not None and isinstance(thing, numpy.RandomState):
        return partial(thing.get_state, legacy=False), thing.set_state
    return None


class SampleRandom:
    """Random numbers for the samples of one batch, each keyed on (seed, epoch, sample), drawn all at once.

    A counter-based generator (the splitmix64 finaliser, Steele et al. 2014) over int64 tensors: no state, the same
    numbers on every device and for every way of cutting an epoch into batches. Each call of ``uniform`` is a new
    draw, so call it in the same order for every batch.
    """

    def __init__(self, key: int, samples: torch.Tensor) -> None:
        """``key`` from ``derive(seed, "augment", epoch)``; ``samples`` int64 (n,), their numbers in the data set."""
        self._key = key
        self._samples = samples
        self._draw = 0

    def uniform(self, width: int = 1) -> torch.Tensor:
        """float32 in [0, 1), shape (samples, width)."""
        self._draw += 1
        offset = _signed(derive(self._key, self._draw))
        lanes = torch.arange(width, device=self._samples.device, dtype=torch.int64)
        x = (self._samples.to(torch.int64)[:, None] * _signed(0x9E3779B97F4A7C15) + lanes + 1) ^ offset
        x = x * _signed(0x9E3779B97F4A7C15)
        x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
        x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
        x = x ^ _shift(x, 31)
        return _shift(x, 40).to(torch.float32) * 2.0**-24

    def integers(self, low: int, high: int, width: int = 1) -> torch.Tensor:
        """int64 in [low, high), shape (samples, width)."""
        return (self.uniform(width) * (high - low)).to(torch.int64).clamp_(max=high - low - 1) + low


def _signed(value: int) -> int:
    """A 64-bit pattern as the int64 that torch wants."""
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def _shift(x: torch.Tensor, by: int) -> torch.Tensor:
    """Logical right shift: torch's is arithmetic on int64."""
    return (x >> by) & ((1 << (64 - by)) - 1)
