"""``run.sum`` and ``run.mean`` of tensors are as exact as their dtype can hold the result."""

from __future__ import annotations

import pytest
import torch

import rankup
from ranks import run_ranks

RANKS = 4
MEANS = {
    # of each rank with samples: value, count
    "the product with the count would be rounded": (torch.bfloat16, [(1.0, 257), (1.0, 257)], 1.0),
    "the product with the count would overflow": (torch.float16, [(300.0, 256), (304.0, 256)], 302.0),
    "float32 would lose the small one": (torch.float32, [(2.0**25, 1), (1.0, 1), (-(2.0**25), 1)], 1 / 3),
    "a rank without samples may hold a NaN": (torch.bfloat16, [(2.0, 4), (float("nan"), 0)], 2.0),
    "whole numbers have a mean with a fraction": (torch.int64, [(1, 1), (2, 1)], 1.5),
}
SUMS = {
    "the sum of the first would be rounded": (torch.bfloat16, [256.0, 1.0, 1.0, 1.0], 260.0),
    "the sum of the first would overflow": (torch.float16, [60000.0, 60000.0, -60000.0, -30000.0], 30000.0),
    "float32 would lose the small one": (torch.float32, [2.0**25, 1.0, -(2.0**25)], 1.0),
    "whole numbers stay whole and exact": (torch.int64, [2**60 + 1, 1], 2**60 + 2),
}


def columns(value, dtype):
    """In another memory format than a collective takes."""
    return torch.full((3, 2), value, dtype=dtype).t()


def reduced():
    run = rankup.init(device="cpu")
    found = {}
    for case, (dtype, pairs, _) in MEANS.items():
        value, count = [*pairs, *[(0, 0)] * RANKS][run.world.rank]
        found["mean", case] = run.mean(columns(value, dtype), count)
    for case, (dtype, values, _) in SUMS.items():
        mine = columns([*values, *[0] * RANKS][run.world.rank], dtype)
        before = mine.clone()
        found["sum", case] = run.sum(mine)
        assert torch.equal(mine, before)
    return {key: (str(value.dtype), value.tolist()) for key, value in found.items()}


@pytest.fixture(scope="module")
def of_ranks():
    return run_ranks(reduced, RANKS)


@pytest.mark.parametrize("case", MEANS)
def test_a_mean_is_rounded_once(of_ranks, case):
    dtype, _, mean = MEANS[case]
    kind = dtype if dtype.is_floating_point else torch.get_default_dtype()
    expected = torch.full((2, 3), mean, dtype=torch.float64).to(kind).tolist()
    assert [found["mean", case] for found in of_ranks] == [(str(kind), expected)] * RANKS


@pytest.mark.parametrize("case", SUMS)
def test_a_sum_is_rounded_once(of_ranks, case):
    dtype, _, total = SUMS[case]
    expected = torch.full((2, 3), total, dtype=dtype).tolist()
    assert [found["sum", case] for found in of_ranks] == [(str(dtype), expected)] * RANKS
