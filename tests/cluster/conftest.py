"""The fixtures ``cluster``, one lab for all the tests that want it, and ``own_cluster``; torn down however they end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab import Lab, why_not


@pytest.fixture(scope="session")
def cluster() -> Iterator[Lab]:
    """For all tests that leave it as they find it."""
    yield from _lab(warm=True)


@pytest.fixture
def own_cluster() -> Iterator[Lab]:
    """For a test that breaks something."""
    yield from _lab(warm=False)


def _lab(*, warm: bool) -> Iterator[Lab]:
    reason = why_not()
    if reason:
        pytest.skip(f"no SLURM lab: {reason}")
    lab = Lab(warm=warm)
    try:
        lab.up()
        yield lab
    finally:
        lab.down()
