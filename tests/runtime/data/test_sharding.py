"""Order and shares: every sample exactly once per epoch, in the same global order for every world size."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankup.errors import RankupError
from rankup.runtime.data.batches import cut
from rankup.runtime.data.feeds import LoaderOptions, RankContext, make_loader
from rankup.runtime.data.order import all_rows
from rankup.runtime.data.portions import Batch
from rankup.runtime.data.resident import ResidentData
from rankup.runtime.data.sharding import Sharding
from rankup.runtime.loop.precision import FP32
from rankup.strategies.batch_plan import BatchPlan, share


@given(total=st.integers(0, 500), world_size=st.integers(1, 40))
def test_shares_are_contiguous_and_differ_by_one_at_most(total, world_size):
    bounds = [share(total, rank, world_size) for rank in range(world_size)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == total
    assert all(a[1] == b[0] for a, b in itertools.pairwise(bounds))
    sizes = [stop - start for start, stop in bounds]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(
    length=st.integers(1, 300),
    world_size=st.integers(1, 7),
    extra=st.integers(0, 60),
    epoch=st.integers(0, 5),
    parts=st.integers(1, 4),
)
def test_the_ranks_together_see_the_global_order(length, world_size, extra, epoch, parts):
    global_batch = world_size + extra
    reference = Sharding(length, global_batch, 0, 1, seed=3, shuffle=True)
    order_of = reference.order(epoch)
    order = all_rows(order_of)
    assert sorted(order.tolist()) == list(range(length))
    ranks = [Sharding(length, global_batch, r, world_size, seed=3, shuffle=True) for r in range(world_size)]
    cuts = [list(cut(sharding, sharding.plan(0), 0, parts, fill=True)) for sharding in ranks]
    for step in range(reference.steps):
        seen, counts, totals = [], 0, set()
        for whole in cuts:
            pieces = whole[step]
            values = order_of.rows(pieces.spans).split(pieces.sizes)
            batches = [Batch(*each) for each in ((v, *c) for v, c in zip(values, pieces.counts, strict=True))]
            assert [batch.last for batch in batches] == [False] * (parts - 1) + [True]
            counts += sum(batch.samples for batch in batches)
            totals |= {batch.total for batch in batches}
            for batch in batches:
                assert len(batch.value) > 0  # even a dummy batch holds something to compute on
                if batch.samples:
                    seen += batch.value.tolist()
        assert seen == order[step * global_batch : (step + 1) * global_batch].tolist()
        assert totals == {counts}


@given(length=st.integers(1, 100), world_size=st.integers(1, 7), start=st.integers(0, 5))
def test_an_evaluation_has_no_dummy_batches_and_misses_nothing(length, world_size, start):
    seen = []
    for rank in range(world_size):
        sharding = Sharding(length, max(world_size, 8), rank, world_size, seed=0, shuffle=False)
        for pieces in cut(sharding, sharding.plan(0), 0, 1, fill=False, steps=start + 1):
            assert all(
                samples == size > 0 for size, (samples, *_) in zip(pieces.sizes, pieces.counts, strict=True)
            )
            seen += [i for first, stop in pieces.spans for i in range(first, stop)]
    assert sorted(seen) == list(range(length))


def test_epochs_and_seeds_have_orders_of_their_own():
    first = Sharding(1000, 10, 0, 1, seed=1, shuffle=True)
    other = Sharding(1000, 10, 0, 1, seed=2, shuffle=True)
    orders = [all_rows(sharding.order(epoch)) for sharding in (first, other) for epoch in (0, 1)]
    assert len({tuple(order.tolist()) for order in orders}) == 4
    assert torch.equal(all_rows(first.order(4)), all_rows(first.order(4)))


def test_a_global_batch_smaller_than_the_world_is_refused():
    here = RankContext(BatchPlan(0, 4), 0, torch.device("cpu"), FP32, None)
    with pytest.raises(RankupError, match=r"global batch of 3 leaves nothing for some of 4 processes"):
        make_loader(ResidentData(torch.ones(100)), here, 3, LoaderOptions(), {})


def test_an_empty_data_set_is_refused():
    with pytest.raises(RankupError, match="no samples"):
        Sharding(0, 3, 0, 1, seed=0, shuffle=True)
