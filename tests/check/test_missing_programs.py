"""A program that a job script starts is looked for on the disk, where the job may be submitted."""

from __future__ import annotations

import pytest

from rankup.check.paths import check_paths
from rankup.check.selection import Selection

JOB = "#!/bin/bash\n#SBATCH --nodes=1\nsrun python {}\n"


@pytest.mark.parametrize(
    ("started", "others", "missing"),
    [
        ("trian.py", ("jobs/train.py",), True),
        ("trian.py", ("train.py",), True),  # the job lies in a folder of its own
        ("src/trian.py", ("src/train.py",), True),
        ("src/main.py", ("src/train.py",), True),
        ("trian.py", ("other.py",), False),  # nothing tells where the job is submitted
        ("trian.py", ("train.py", "trian.py"), False),
        ("trian.py", ("train.py", "src/trian.py"), False),  # it may be submitted in src/
        ("trian.py", ("train.py", "jobs/src/trian.py"), False),
        ("src/main.py", ("lib/main.py",), False),
    ],
)
def test_a_program_that_is_not_there_is_found(tmp_path, started, others, missing):
    root = tmp_path / "deep" / "project"
    for name in ("jobs/job.sh", *others):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(JOB.format(started) if name == "jobs/job.sh" else "import torch\n")
    checked = check_paths([root / "jobs" / "job.sh"], Selection(), None)
    assert ("RK173" in [d.rule.code for d in checked.diagnostics]) is missing


def test_a_program_too_large_to_be_read_is_there(tmp_path):
    (tmp_path / "job.sh").write_text(JOB.format("large.py"))
    (tmp_path / "larges.py").write_text("import torch\n")
    (tmp_path / "large.py").write_text("#" * (5 << 20))
    checked = check_paths([tmp_path / "job.sh"], Selection(), None)
    assert "RK173" not in [d.rule.code for d in checked.diagnostics]
