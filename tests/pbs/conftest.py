"""The fixtures ``pbs``, one lab for the tests of a file that want it, and ``own_pbs``; torn down however they end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pbs_lab import PbsLab, why_not


@pytest.fixture(autouse=True)
def no_leaks() -> None:
    """Instead of that of all tests: what a host runs is the lab's to end, as the qsub that stays for the next one."""


@pytest.fixture(scope="module")
def pbs() -> Iterator[PbsLab]:
    """For tests that leave it as they find it. Gone with their file: tests of other files follow on the same worker."""
    yield from _lab(3)


@pytest.fixture
def own_pbs() -> Iterator[PbsLab]:
    """For a test that breaks something."""
    yield from _lab(3)


def _lab(nodes: int) -> Iterator[PbsLab]:
    reason = why_not()
    if reason:
        pytest.skip(f"no PBS lab: {reason}")
    lab = PbsLab(nodes)
    try:
        lab.up()
        yield lab
    finally:
        lab.down()
