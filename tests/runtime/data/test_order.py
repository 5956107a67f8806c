"""The order of a large data set is computed where it is asked for, and is as good as a drawn one."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankup.runtime.data import order
from rankup.runtime.data.batches import cut
from rankup.runtime.data.order import DRAWN, Listed, Sequential, Shuffled, all_rows, cuts, shuffled
from rankup.runtime.data.sharding import Sharding

HUGE = 10**12


@given(length=st.integers(1, 3000), seed=st.integers(0, 2**63 - 1))
def test_a_computed_order_has_every_sample_once(length: int, seed: int):
    assert sorted(all_rows(Shuffled(length, seed)).tolist()) == list(range(length))


@given(
    length=st.integers(10, 2000),
    bounds=st.lists(st.integers(0, 10), min_size=2, max_size=8, unique=True).map(sorted),
)
def test_a_span_has_what_the_whole_order_has_there(length: int, bounds: list[int]):
    spans = [(a * length // 10, b * length // 10) for a, b in pairwise(bounds)][::2]
    for each in (Sequential(length), Shuffled(length, 5), shuffled(length, 5)):
        there = torch.cat([all_rows(each)[a:b] for a, b in spans])
        assert torch.equal(each.rows(spans), there)


def test_an_order_is_drawn_as_long_as_it_is_small():
    assert isinstance(shuffled(DRAWN, 1), Listed)
    assert isinstance(shuffled(DRAWN + 1, 1), Shuffled)
    assert all_rows(shuffled(DRAWN + 1, 1)).sort().values.equal(torch.arange(DRAWN + 1))


def test_what_a_seed_gives_stays_the_same_in_all_versions():
    """A snapshot has the seed and the position alone."""
    assert Shuffled(2**40, 7).rows([(3, 6)]).tolist() == [87118979272, 167775814063, 665470513170]
    assert Shuffled(DRAWN + 1, 7).rows([(DRAWN - 2, DRAWN + 1)]).tolist() == [815823, 650115, 991860]


def test_an_epoch_of_a_trillion_samples_begins_anywhere_at_once():
    sharding = Sharding(HUGE + 5, 4096, rank=9_999, world_size=10_000, seed=1, shuffle=True, drop_last=False)
    plan = sharding.plan(3)
    assert plan.steps == math.ceil((HUGE + 5) / 4096)
    assert plan.total(plan.steps - 1) == (HUGE + 5) % 4096
    for step in (0, plan.steps // 2, plan.steps - 1):
        first = next(cut(sharding, plan, step, 1, fill=True))
        assert 0 <= int(plan.order.rows(first.spans).min()) < HUGE + 5


@pytest.mark.parametrize("seed", range(4))
def test_the_ranks_of_a_large_data_set_share_it(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(order, "DRAWN", 0)
    ranks = [Sharding(1003, 64, rank, 3, seed, shuffle=True) for rank in range(3)]
    seen = [
        number
        for sharding in ranks
        for pieces in cut(sharding, sharding.plan(2), 0, 1, fill=False)
        for number in sharding.plan(2).order.rows(pieces.spans).tolist()
    ]
    assert sorted(seen) == list(range(1003))


@given(length=st.integers(1, 60), batch=st.integers(1, 70), drop_last=st.booleans(), data=st.data())
def test_steps_in_constant_memory_are_those_of_a_list(length, batch, drop_last, data):
    starts = [*range(0, length + 1, batch)]
    starts += [] if drop_last or length % batch == 0 else [length]
    ours = cuts(length, batch, drop_last=drop_last)
    assert (
        [*ours] == starts and len(ours) == len(starts) and [ours[at] for at in range(len(starts))] == starts
    )
    first, stop = (data.draw(st.integers(0, len(starts) + 1)) for _ in range(2))
    assert [*ours[first:stop]] == starts[first:stop] and [*ours[first:]] == starts[first:]
    assert ours[-1] == starts[-1]


def _deviations(counts: torch.Tensor, expected: torch.Tensor) -> float:
    """Chi squared, in standard deviations from its mean."""
    degrees = counts.numel() - 1
    chi = float(((counts - expected) ** 2 / expected).sum())
    return abs(chi - degrees) / math.sqrt(2 * degrees)


@pytest.mark.repeated
@pytest.mark.parametrize(("length", "seeds"), [(1000, 400), (1009, 400), (5000, 100)])
def test_a_computed_order_is_as_even_as_chance(length: int, seeds: int):
    """Each test's value for ``torch.randperm`` is between 0 and 2. With four rounds the fourth is above 100."""
    orders = torch.stack([all_rows(Shuffled(length, seed)) for seed in range(seeds)])
    tenths = torch.arange(length) * 10 // length
    sizes = torch.bincount(tenths).double()
    where = (tenths[None] * 10 + orders * 10 // length).flatten()
    placed = torch.bincount(where, minlength=100).double()
    assert _deviations(placed, (sizes[:, None] * sizes[None] / length * seeds).flatten()) < 4
    first = torch.bincount(orders[:, 0] * 10 // length, minlength=10).double()
    assert _deviations(first, sizes / length * seeds) < 4
    columns = 2 ** math.isqrt(length - 1).bit_length()
    for apart in (1, columns):  # neighbours in a row of its table, and in a column
        steps = (orders[:, apart:] - orders[:, :-apart]) % length
        found = torch.bincount(steps.flatten(), minlength=length).double()[1:]
        assert _deviations(found, torch.full_like(found, steps.numel() / (length - 1))) < 4
