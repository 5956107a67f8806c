"""Numbers, texts and flags in attributes of models and optimizers, which no ``state_dict`` has."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks


class Cooling(nn.Module):
    def __init__(self, warmth: float = 1.0) -> None:
        super().__init__()
        self.inner, self.warmth = nn.Linear(2, 1), warmth
        self.gone = 0.0
        self.last: deque[float] = deque(maxlen=3)
        self.seen: dict[int, tuple[str, list[int]]] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.warmth *= 0.5
        self.last.append(self.warmth)
        self.seen[len(self.seen)] = ("a", [len(x)])
        self.gone = float("nan")
        return self.inner(x) * self.warmth


class Caching(Cooling):
    def __init__(self) -> None:
        super().__init__()
        self.cached: torch.Tensor | None = None
        self.length = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.length < len(x):
            self.cached, self.length = torch.arange(len(x)), len(x)
        assert self.cached is not None
        return super().forward(x) + self.cached[: len(x), None]


def begin(model: nn.Module) -> Any:
    run = rankup.init(precision="fp64")
    data = rankup.ResidentData(torch.ones(12, 2, dtype=torch.float64))
    return run, *run.prepare(model, lambda p: torch.optim.SGD(p, lr=0.01), data, global_batch=2)


def trained(model: nn.Module, saved: Any = None, steps: int = 2) -> tuple[nn.Module, Any]:
    """After some more steps, and the state there."""
    run, model, opt, data = begin(model)
    if saved is not None:
        run.state.load_state_dict(saved)
    for _ in (steps_of := run.steps(data, epochs=1)):
        run.backward(model(torch.ones(2, 2, dtype=torch.float64)).mean())
        run.step(opt)
        steps -= 1
        if steps == 0:
            break
    state = run.state.state_dict()
    steps_of.close()
    return model, state


def test_they_are_restored_also_for_the_second_time():
    _, saved = trained(Cooling())
    model, saved = trained(Cooling(), saved)
    assert model.warmth == 0.5**4
    model = Cooling()
    last = model.last
    model, _ = trained(model, saved)
    assert model.warmth == 0.5**6 and model.gone != model.gone
    assert model.last is last and last == deque([0.5**4, 0.5**5, 0.5**6], 3)
    assert model.seen == {number: ("a", [2]) for number in range(6)}


def test_a_value_that_the_edited_script_begins_with_holds():
    _, saved = trained(Cooling())
    model, _ = trained(Cooling(warmth=8.0), saved)
    assert model.warmth == 8.0 * 0.5**2


def test_a_length_whose_tensors_are_cached_beside_it_is_computed_anew():
    _, saved = trained(Caching())
    model, _ = trained(Caching(), saved)
    assert isinstance(model, Caching) and model.length == 2
    assert model.warmth == 0.5**2  # lost with it, which a warning says


class Thawing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 1)
        self.first.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


def test_layers_that_were_unfrozen_are_so_after_a_second_load():
    run, model, opt, data = begin(Thawing())
    saved: Any = None
    for attempt in range(3):
        if attempt:
            run, model, opt, data = begin(Thawing())
            run.state.load_state_dict(saved)
        for _ in run.steps(data, epochs=1):
            model.first.requires_grad_(True)
            run.backward(model(torch.ones(2, 2, dtype=torch.float64)).mean())
            run.step(opt)
            saved = run.state.state_dict()
            break


def cooled(directory: str, steps: int) -> float:
    run = rankup.init(precision="fp64", snapshots=rankup.Snapshots(directory=directory, every="1 steps"))
    data = rankup.ResidentData(torch.ones(24, 2, dtype=torch.float64))
    model, opt, data = run.prepare(Cooling(), lambda p: torch.optim.SGD(p, lr=0.01), data, global_batch=6)
    for x in run.steps(data, steps=steps):
        run.backward(model(x).mean())
        run.step(opt)
    return model.warmth


@pytest.mark.parametrize("ranks", [1, 3])
def test_they_are_restored_on_another_number_of_ranks(tmp_path: Path, ranks: int):
    assert run_ranks(cooled, 2, str(tmp_path), 2) == [0.25] * 2
    assert run_ranks(cooled, ranks, str(tmp_path), 4) == [0.0625] * ranks
