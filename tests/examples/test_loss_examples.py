"""The examples of losses: the model of the plain loop beside them, on any number of processes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

from ranks import run_ranks

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "losses").glob("*.py"))


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def weights(kind: str) -> dict[str, list[torch.Tensor]]:
    torch.set_default_dtype(torch.float64)
    options = {"precision": "fp64"} if kind == "with_rankup" else {}
    return {path.stem: list(getattr(load(path), kind)(**options).parameters()) for path in EXAMPLES}


@pytest.mark.slow
def test_each_example_trains_the_model_of_its_plain_loop():
    (expected,) = run_ranks(weights, 1, "plain")
    assert len(expected) >= 7
    for world in (1, 2, 3):
        for rank in run_ranks(weights, world, "with_rankup"):
            for name, found in rank.items():
                for ours, theirs in zip(found, expected[name], strict=True):
                    assert torch.allclose(ours, theirs, rtol=0, atol=1e-12), (name, world)
