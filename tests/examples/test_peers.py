"""What the README's table says of other tools, measured.

A new version of theirs that does something else makes these tests fail. What the table says of torchrun and DDP is in
the tutorial (pages 2 and 3), whose commands are run by ``tests/docs/test_tutorial.py``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from flaky import aborts_at_exit

SAMPLES = Path(__file__).parent / "peer_samples.py"
#: Tool → (its package, steps of an epoch on two processes, samples that they train on in it).
EPOCHS = {
    "accelerate": ("accelerate", 12, 1440),
    "fabric": ("lightning", 12, 1438),
}


def needs(package: str) -> None:
    if not find_spec(package):
        pytest.skip(f"{package} is not installed: pip install 'rankup[peers]'")


@aborts_at_exit
@pytest.mark.campaign  # of the versions in constraints.txt it is known
@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("kind", EPOCHS)
def test_an_epoch_of_1437_samples_on_two_processes(tmp_path, kind):
    """One process takes 24 steps: 23 of 60 samples and one of 57. So does rankup, on any number of processes."""
    package, steps, samples = EPOCHS[kind]
    needs(package)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            SAMPLES,
            kind,
        ],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ranks = [(int(a), int(b)) for a, b in re.findall(r"(\d+) steps, (\d+) samples", done.stdout)]
    assert [rank[0] for rank in ranks] == [steps, steps]
    assert sum(rank[1] for rank in ranks) == samples


def test_a_job_of_submitit_needs_submitit_on_the_nodes_and_knows_no_pbs(tmp_path, monkeypatch):
    needs("submitit")
    import submitit

    for name, answer in {"sbatch": "Submitted batch job 4711", "squeue": "", "sacct": "", "srun": ""}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{answer}'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    executor = submitit.AutoExecutor(folder=tmp_path / "logs", cluster="slurm")
    executor.submit(print, "hello")
    assert (tmp_path / "logs" / "4711_submitted.pkl").exists()
    script = (tmp_path / "logs" / "4711_submission.sh").read_text()
    assert re.search(r"python[\d.]* -u -m submitit", script), script
    with pytest.raises(ValueError, match="pbs"):
        submitit.AutoExecutor(folder=tmp_path / "logs", cluster="pbs")
