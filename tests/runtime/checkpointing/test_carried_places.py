"""State in odd places of a script: default arguments, partials, bound methods, class attributes, the environment."""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from runtime.checkpointing.carrying import attempts, begin, step

config = types.ModuleType("config")
config.weight = 1.0  # type: ignore[attr-defined]


class Count:
    calls = 0
    last: Any = None

    def __init__(self) -> None:
        self.number = 0

    def tick(self, by: int) -> int:
        self.number += by
        return self.number

    @classmethod
    def of_class(cls) -> int:
        cls.calls += 1
        return cls.calls


def appended(value: float, seen: list[float] = []) -> int:  # noqa: B006
    seen.append(value)
    return len(seen)


def ticked(by: int, *, count: Count = Count()) -> int:  # noqa: B008
    return count.tick(by)


def noted(log: dict[str, int], key: str) -> int:
    log["notes"] = log.get("notes", 0) + len(key)
    return log["notes"]


def counted(function: Callable[..., int]) -> Callable[..., int]:
    number = 0

    @functools.wraps(function)
    def around(*values: Any) -> int:
        nonlocal number
        number += 1
        return function(*values) + number

    return around


@counted
def same(value: int) -> int:
    return value


def in_odd_places(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    note, tick, record = functools.partial(noted, {}), Count().tick, list[int]()
    push = lambda value: record.append(value)  # noqa: E731, PLW0108
    holder = types.SimpleNamespace(meter=types.SimpleNamespace(total=0))
    for epoch in run.epochs(3):
        for batch in epoch:
            step(run, model, opt, batch, stop)
        appended(1.0)
        ticked(1)
        note("loss")
        tick(2)
        push(3)
        same(4)
        Count.of_class()
        config.weight *= 0.9
        os.environ["RANKUP_TEST_PASSES"] = os.environ.get("RANKUP_TEST_PASSES", "") + "+"
        meter = holder.meter
        meter.total += 1


PLACES = (
    "appended(seen=…) (list of 1 when it was saved, list of 0 now)",
    "ticked(count=…).number (1 when it was saved, 0 now)",
    "note(log=…) (dict of 1 when it was saved, dict of 0 now)",
    "tick.__self__.number (2 when it was saved, 0 now)",
    "record (list of 1 when",
    "same.number (1 when",
    "Count.calls (1 when",
    "config.weight (0.9 when it was saved, 1.0 now)",
    "os.environ[\"RANKUP_TEST_PASSES\"] ('+' when it was saved, nothing now)",
    "holder.meter.total (1 when it was saved, 0 now)",
)


def test_state_of_functions_classes_and_the_environment_is_named(tmp_path: Path):
    (first,), (second,) = attempts(in_odd_places, tmp_path, (5, -1))
    assert [each for each in PLACES if each not in second] == [], second
    assert [each for each in {each.split(" (")[0] for each in PLACES} if each not in first] == []
    assert "run.register(seen=…) before the loop, and pass that to appended in each call" in first


def put(value: int, into: dict[str, int] = {}) -> int:  # noqa: B006
    into["value"] = value
    return into["value"]


def fresh(value: int, into: list[int] | None = None) -> list[int]:
    into = into or []
    into.append(value)
    return into


def filled(table: list[int], value: int) -> int:
    table[:] = [value]
    return table[0]


def scaled(value: int, factors: tuple[int, ...] = (1, 2), names: dict[str, int] = {"a": 1}) -> int:  # noqa: B006
    return value * factors[1] * names["a"]


def set_anew(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    scale, table = functools.partial(scaled, factors=(1, 3)), [0]
    kept = list[int]()
    run.register(history=kept)
    for epoch in run.epochs(3):
        for batch in epoch:
            step(run, model, opt, batch, stop)
        put(epoch.index)
        fresh(epoch.index)
        scale(epoch.index)
        os.environ["RANKUP_TEST_EPOCH"] = str(epoch.index)
        config.epoch = epoch.index  # type: ignore[attr-defined]
        assert os.environ.get("RANKUP_TEST_EPOCH") and config.epoch == epoch.index  # type: ignore[attr-defined]
        history = kept
        history.append(epoch.index)
        appended(epoch.index, kept)
    assert table


def test_what_each_pass_sets_or_a_call_gives_is_not_named(tmp_path: Path):
    (first,), (second,) = attempts(set_anew, tmp_path, (5, -1))
    assert (first, second) == ("", "")


def drawn(generator: torch.Generator) -> Callable[[], float]:
    return lambda: torch.rand((), generator=generator).item()


def with_held_generators(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    state = {"noise": torch.Generator().manual_seed(1)}
    several = [torch.Generator().manual_seed(2)]
    draw = drawn(torch.Generator().manual_seed(3))
    for epoch in run.epochs(2):
        for batch in epoch:
            step(run, model, opt, batch, stop)
            torch.rand((), generator=state["noise"])
            torch.rand((), generator=several[0])
            draw()


def test_generators_in_dicts_lists_and_closures_are_named(tmp_path: Path):
    ((first,),) = attempts(with_held_generators, tmp_path, (-1,))
    for name in ("state['noise']", "several[0]", "draw.generator"):
        assert f"Generator ({name}) has a state and is not registered" in first, first
    assert "run.register(noise=state['noise']) before the loop" in first, first
