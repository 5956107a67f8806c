"""What is said of a job before the queue: the words are in ``findings.toml``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankup.findings.finding import Finding
from rankup.findings.table import FindingTable
from rankup.resolve.resolved import Resolved

_TABLE = FindingTable(Path(__file__).with_suffix(".toml"))
MOST_TASKS = int(_TABLE.limits["bad-array"]["most_tasks"])


def finding(code: str, job: Resolved, *, place: str = "", **values: Any) -> Finding:
    """The finding of ``code`` about ``job``; its words may name any value of ``job``, ``spec`` and ``site``."""
    return _TABLE(code, place, job=job, spec=job.spec, site=job.site, **values)
