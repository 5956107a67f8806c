"""The files that ``units.py`` names are there, and each one that needs a cluster shares one."""

from __future__ import annotations

from pathlib import Path

from units import APART, CLUSTER_OF, NEXT, PBS_OF

HERE = Path(__file__).parent


def test_each_named_file_is_there():
    assert [name for name in (*CLUSTER_OF, *APART, *PBS_OF, *NEXT) if not (HERE / name).is_file()] == []


def test_each_file_of_the_cluster_shares_one():
    for folder, named in (("cluster", CLUSTER_OF), ("pbs", PBS_OF)):
        files = {path.relative_to(HERE).as_posix() for path in (HERE / folder).glob("test_*.py")}
        assert files == named.keys()
