"""Random numbers keyed on what they are for."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from rankup.runtime.seed import SampleRandom, derive, rng_state, set_rng_state


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50, unique=True), st.integers(0, 49))
def test_a_samples_numbers_do_not_depend_on_its_batch(samples, cut):
    together = SampleRandom(7, torch.tensor(samples))
    whole = torch.stack([together.uniform(3), together.uniform(3)])
    cut = cut % len(samples)
    parts = []
    for part in (samples[:cut], samples[cut:]):
        draws = SampleRandom(7, torch.tensor(part, dtype=torch.int64))
        parts.append(torch.stack([draws.uniform(3), draws.uniform(3)]))
    assert torch.equal(torch.cat(parts, dim=1), whole)


def test_numbers_look_uniform_and_unrelated():
    numbers = SampleRandom(1, torch.arange(100_000))
    first, second = numbers.uniform(2), numbers.uniform(2)
    for column in (first[:, 0], first[:, 1], second[:, 0]):
        assert column.min() >= 0 and column.max() < 1
        assert abs(column.mean().item() - 0.5) < 0.005
        assert abs(column.var().item() - 1 / 12) < 0.002
    for a, b in ((first[:, 0], first[:, 1]), (first[:, 0], second[:, 0]), (first[:-1, 0], first[1:, 0])):
        assert abs(torch.corrcoef(torch.stack((a, b)))[0, 1].item()) < 0.02
    other_key = SampleRandom(2, torch.arange(100_000)).uniform(1)[:, 0]
    assert abs(torch.corrcoef(torch.stack((first[:, 0], other_key)))[0, 1].item()) < 0.02


def test_integers_cover_their_range_and_stay_inside():
    values = SampleRandom(1, torch.arange(10_000)).integers(-2, 3)
    assert sorted(values.unique().tolist()) == [-2, -1, 0, 1, 2]


def test_derived_seeds_differ_by_any_part_of_the_key():
    seeds = {derive(s, *key) for s in (0, 1) for key in (("a",), ("b",), ("a", 0), ("a", 1), (1, "a"))}
    assert len(seeds) == 10
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_the_state_of_the_generators_comes_back():
    import random

    import numpy as np

    state = rng_state()
    first = (torch.rand(3), random.random(), np.random.rand())
    set_rng_state(state)
    again = (torch.rand(3), random.random(), np.random.rand())
    set_rng_state(state)
    assert torch.equal(first[0], again[0]) and first[1:] == again[1:]
