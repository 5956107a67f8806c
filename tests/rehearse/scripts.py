"""Job scripts that tests rehearse, and what they say."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rankup.rehearse.rehearse import Options
from rankup.rehearse.report import Report, report_of
from rankup.rehearse.request import Sizes

PLAIN = "import torch\ntorch.distributed.init_process_group('nccl')\n"


def rehearsed(
    folder: Path, body: str, directives: Sequence[str] = (), *, scheduler: str = "slurm", program: str = PLAIN,
    seconds: float = 60, sizes: Sizes | None = None, shell: str = "/bin/bash", **options: object,
) -> Report:  # fmt: skip
    """The report of a script with ``directives`` and ``body``, beside a program ``train.py``."""
    mark = "#SBATCH" if scheduler == "slurm" else "#PBS"
    script = folder / "job.sh"
    script.write_text(f"#!{shell}\n" + "".join(f"{mark} {line}\n" for line in directives) + body + "\n")
    if program:
        (folder / "train.py").write_text(program)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(folder), "USER": "alice", "LANG": "C.UTF-8"}
    return report_of(script, sizes or Sizes(), Options(seconds=seconds, **options), env)  # type: ignore[arg-type]


def text(report: Report, folder: Path, width: int = 100) -> str:
    """What the command prints, with the folder's name replaced."""
    return re.sub(re.escape(str(folder)), "DIR", "\n".join(report.lines(width)))


def codes(report: Report) -> set[str]:
    return {finding.code for finding in report.findings}
