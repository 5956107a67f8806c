"""The fixture ``cluster``: one lab for all the tests that want it, torn down however they end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab import Lab, why_not


@pytest.fixture(scope="session")
def cluster() -> Iterator[Lab]:
    reason = why_not()
    if reason:
        pytest.skip(f"no SLURM lab: {reason}")
    lab = Lab()
    try:
        lab.up()
        yield lab
    finally:
        lab.down()
