"""Our examples, the code in our pages and our own programs have no mistakes.

The job scripts that rankup writes: facts/test_job_robustness.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rankup.check.paths import check_paths
from rankup.check.selection import Selection
from rankup.findings.finding import Severity

ROOT = Path(__file__).parents[2]
RULES = "*/docs/reference/rules"  # holds each rule's bad example


@pytest.mark.repeated
@pytest.mark.parametrize("folder", ["examples", "docs", "README.md", "src", "benchmarks"])
def test_nothing_of_ours_has_an_error_or_a_warning(folder):
    checked = check_paths([ROOT / folder], Selection(exclude=(RULES,)), None)
    assert checked.texts
    assert [str(d.place) for d in checked.diagnostics if d.finding.severity is not Severity.NOTE] == []
