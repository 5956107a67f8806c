"""Mixtures of experts, ModuleDicts, LayerDrop, shared and tied modules: every strategy trains as a plain loop does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sometimes import ALWAYS_WHOLE, MODELS, plain, trained
from toy import largest_difference

from ranks import run_ranks

# fsdp: also what needs a reduction of its own, or none until the window's end.
CASES: dict[str, dict[str, Any]] = {name: {} for name in MODELS} | {
    "four experts, clipped": {"clip": 0.5},
    "ModuleDict, clipped": {"clip": 0.5},
}


def model_of(case: str) -> str:
    return case.partition(",")[0]


def all_plain() -> dict[str, dict[str, torch.Tensor]]:
    return {case: plain(model_of(case), **options) for case, options in CASES.items()}


def all_trained(strategy: str) -> dict[str, dict[str, torch.Tensor]]:
    found = {}
    for case, options in CASES.items():
        name = model_of(case)
        found[case] = trained(name, strategy, find_unused_parameters=True, **options)
        if name in ALWAYS_WHOLE:
            found[f"{case}, not declared"] = trained(name, strategy, **options)
    return found


@pytest.fixture(scope="module")
def wanted() -> dict[str, dict[str, torch.Tensor]]:
    return run_ranks(all_plain, 1)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "ranks"),
    [
        ("none", 1),
        pytest.param("ddp", 2, marks=pytest.mark.campaign),
        ("ddp", 3),
        pytest.param("fsdp", 2, marks=pytest.mark.campaign),
        ("fsdp", 3),
        pytest.param("fsdp", 4, marks=pytest.mark.campaign),  # as on three, where shards are uneven as well
        pytest.param("any-world", 2, marks=pytest.mark.campaign),
        pytest.param("any-world", 3, marks=pytest.mark.campaign),
    ],
)
def test_parts_of_a_model_are_trained_as_by_the_plain_loop(wanted, strategy, ranks):
    weights = run_ranks(all_trained, ranks, strategy)[0]
    differences = {
        case: largest_difference(weights[case], wanted[case.replace(", not declared", "")])
        for case in weights
    }
    assert {case: value for case, value in differences.items() if value > 1e-10} == {}
