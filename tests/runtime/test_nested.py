"""Batches and outputs of any nesting are moved and cast whole."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass

import torch

from rankup.runtime.nested import map_tensors

Pair = namedtuple("Pair", "a b")


@dataclass
class Output:
    logits: torch.Tensor
    name: str


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
