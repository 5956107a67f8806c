"""Batches and outputs of any nesting are moved and cast whole."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pack_sequence

from rankup.runtime.data.loaders import mover
from rankup.runtime.loop.precision import make_precision
from rankup.runtime.pytree import map_tensors

Pair = namedtuple("Pair", "a b")


@dataclass
class Output:
    logits: torch.Tensor
    name: str


class Graph:
    """A batch that moves itself."""

    def __init__(self, place: str = "cpu") -> None:
        self.place = place

    def to(self, device: torch.device) -> Graph:
        return Graph(device.type)


def test_a_batch_goes_to_another_device_in_whatever_it_comes():
    packed = pack_sequence([torch.ones(3, 2), torch.ones(2, 2)], enforce_sorted=False)
    move = mover(torch.device("meta"), make_precision("fp32", torch.device("cpu")))
    assert move is not None
    there, graph, text = move((packed, Graph(), "text"))
    places = [t.device.type for t in (there.data, there.sorted_indices, there.unsorted_indices)]
    assert places == ["meta"] * 3 and there.batch_sizes.device.type == "cpu"
    assert (graph.place, text) == ("meta", "text")


def test_every_tensor_is_changed_and_every_container_keeps_its_type():
    t = torch.ones(2)
    value = [
        t, (t, 3), Pair(t, None), {"x": t}, OrderedDict(y=[t]), UserDict(z=t), Output(t, "n"), "text",
    ]  # fmt: skip
    changed = map_tensors(lambda tensor: tensor.double(), value)
    assert [type(item) for item in changed] == [type(item) for item in value]
    leaves = [
        changed[0], changed[1][0], changed[2].a, changed[3]["x"], changed[4]["y"][0], changed[5]["z"],
        changed[6].logits,
    ]  # fmt: skip
    assert all(leaf.dtype == torch.float64 for leaf in leaves)
    assert (changed[1][1], changed[2].b, changed[6].name, changed[7]) == (3, None, "n", "text")
