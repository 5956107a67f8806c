"""Our examples, the code in our pages and our own programs have no mistakes.

The job scripts that rankup writes: facts/test_job_robustness.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from goldens.jobs import CASES
from rankup.check.paths import check_paths
from rankup.check.selection import Selection
from rankup.findings.finding import Severity
from script.test_script_goldens import golden

ROOT = Path(__file__).parents[2]
RULES = "*/docs/reference/rules"  # holds each rule's bad example


@pytest.mark.repeated
@pytest.mark.parametrize("folder", ["examples", "docs", "README.md", "src", "benchmarks"])
def test_nothing_of_ours_has_an_error_or_a_warning(folder):
    checked = check_paths([ROOT / folder], Selection(exclude=(RULES,)), None)
    assert checked.texts
    assert [str(d.place) for d in checked.diagnostics if d.finding.severity is not Severity.NOTE] == []


@pytest.mark.repeated
@pytest.mark.parametrize("name", sorted(CASES.keys() - {"slurm-program"}))  # which starts no Python
def test_the_program_of_a_job_that_rankup_writes_is_read(tmp_path, name):
    (tmp_path / "job.sh").write_text(golden(name))
    (tmp_path / "train.py").write_text("import torch\n")
    checked = check_paths([tmp_path / "job.sh"], Selection(), None)
    # A job without a scheduler starts its own copy again, and a job that stages the program that it has written.
    assert {one.name for _, one in checked.not_followed} <= {"$RUN/job.sh", "$RUN/stage.py"}
    assert str(tmp_path / "train.py") in checked.texts
