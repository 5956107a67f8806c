"""Which device a rank gets, and what follows from its kind. Intel's GPUs are stand-ins: ``torch.xpu`` says that they
are there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rankup.errors import RankupError
from rankup.runtime import seed
from rankup.runtime.data.loader_options import loader_options
from rankup.runtime.init import choose_device
from rankup.runtime.loop.precision import make_precision
from rankup.runtime.records.arrival import DeviceArrival, arrival_of
from rankup.runtime.records.facts import device_name
from rankup.world import BACKENDS, World

TILE = torch.device("xpu", 3)


class Event:
    def __init__(self, enable_timing: bool) -> None:
        self.records = 0

    def record(self) -> None:
        self.records += 1

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Event) -> float:
        return 12.0  # ms


@pytest.fixture
def tiles(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Twelve of them: what is set on them."""
    noted: dict[str, Any] = {"states": [torch.tensor([number]) for number in range(12)]}
    for name, value in {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 12,
        "set_device": lambda device: noted.update(device=device),
        "get_device_name": lambda device: f"Max 1550, tile {device.index}",
        "get_rng_state_all": lambda: [state.clone() for state in noted["states"]],
        "set_rng_state": lambda state, device: noted["states"].__setitem__(device, state),
        "is_current_stream_capturing": lambda: False,
        "Event": Event,
    }.items():
        monkeypatch.setattr(torch.xpu, name, value, raising=False)
    return noted


def world(local_rank: int) -> World:
    return World(local_rank, local_rank, 16, 16)


@pytest.mark.parametrize(("wanted", "local_rank", "number"), [("auto", 3, 3), ("xpu", 13, 1)])
def test_a_rank_takes_the_tile_of_its_number_on_the_node(tiles, wanted, local_rank, number):
    assert choose_device(world(local_rank), wanted) == torch.device("xpu", number) == tiles["device"]


def test_the_cpu_is_taken_if_it_is_asked_for(tiles):
    assert choose_device(world(0), "cpu") == torch.device("cpu") and "device" not in tiles


@pytest.mark.parametrize("wanted", ["cuda", "xpu"])
def test_a_device_that_is_asked_for_and_not_there_is_an_error(wanted, monkeypatch):
    monkeypatch.setattr(torch.get_device_module(wanted), "is_available", lambda: False)
    with pytest.raises(RankupError) as caught:
        choose_device(world(0), wanted)
    assert caught.value.code == f"no-{wanted}"


def test_a_kind_that_nobody_knows_is_an_error_that_names_the_others():
    with pytest.raises(RankupError) as caught:
        choose_device(world(0), "npu")
    assert caught.value.code == "unknown-device" and caught.value.hint == "one of: auto, cpu, cuda, xpu"


def test_each_kind_has_its_backend_and_flags_go_over_gloo():
    assert BACKENDS == {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl", "xpu": "cpu:gloo,xpu:xccl"}


def test_its_random_numbers_are_in_a_state_and_come_back(tiles):
    state = seed.rng_state()
    assert [int(held) for held in state["xpu"]] == list(range(12))
    tiles["states"] = [torch.tensor([99])] * 12
    seed.set_rng_state(state)
    assert [int(held) for held in tiles["states"]] == list(range(12))


def test_its_name_its_precision_and_its_pinned_batches(tiles):
    assert (
        loader_options({}, TILE)["pin_memory"] and not loader_options({}, torch.device("cpu"))["pin_memory"]
    )
    assert device_name(TILE) == "Max 1550, tile 3"
    assert make_precision("fp16", TILE).name == "fp16"
    with pytest.raises(RankupError) as caught:
        make_precision("tf32", TILE)
    assert caught.value.code == "precision-needs-gpu"


def test_the_arrival_of_a_gradient_is_timed_by_its_own_events(tiles):
    model = torch.nn.Linear(1, 1)
    arrival = arrival_of([model], TILE)
    assert isinstance(arrival, DeviceArrival)
    arrival.steps_done(1, 1.0)
    model(torch.ones(1, 1)).sum().backward()
    arrival.steps_done(1, 2.0)
    assert arrival.known == (1, 0.012)
    arrival.close()
