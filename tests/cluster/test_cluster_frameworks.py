"""Scripts made for other launchers train unchanged on two nodes: one world, and one model in it.

Each of them ends with the same words on every rank; see ``examples/``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
from lab import HEAD, Lab

from flaky import aborts_at_exit

pytestmark = pytest.mark.cluster

EXAMPLES = Path(__file__).parents[2] / "examples"
# Not by lines: those of two ranks may come in pieces.
DONE = re.compile(r"rank (\d+) of (\d+) is done, ([a-z ]+-?\d+\.?\d{0,9})")


def rankup_run(cluster: Lab, command: tuple[str, ...], nproc: int) -> str:
    """``rankup run`` in a batch script, once for both nodes."""
    line = shlex.join([cluster.python, "-m", "rankup", "run", "--nproc-per-node", str(nproc), *command])
    job = cluster.sbatch(f"#!/bin/bash\n{line}\n", "-N2", "--ntasks-per-node=1", "--cpus-per-task=4")
    state = cluster.wait(job, timeout=150)
    assert state == "COMPLETED", job.log.read_text()
    return job.log.read_text()


def submit(launcher: str, cluster: Lab, command: tuple[str, ...], nproc: int) -> str:
    """``rankup submit`` on the head, followed to the job's end."""
    options = ["--site", "slurm", "--nodes", "2", "--nproc-per-node", str(nproc), "--launcher", launcher]
    tokens = [cluster.python, "-m", "rankup", "submit", *options, "--time", "10m", "--follow", *command]
    done = cluster.run(HEAD, tokens, timeout=150)
    assert done.code == 0, done.out + done.err
    return done.out


# Way of starting → what starts a command on two nodes of so many ranks and returns all that was printed.
WAYS: dict[str, Callable[[Lab, tuple[str, ...], int], str]] = {
    "rankup-run": rankup_run,
    "submit-torchrun": partial(submit, "torchrun"),
    "submit-srun": partial(submit, "srun"),
    "submit-mpirun": partial(submit, "mpirun"),
}
# Script → its package, "" for PyTorch alone; and the arguments that its users give it for two nodes of two.
SCRIPTS = {
    "ddp_plain.py": ("", ("--epochs", "1")),
    "frameworks/deepspeed_environment.py": ("", ()),
    "frameworks/accelerate_loop.py": ("accelerate", ()),
    "frameworks/hf_trainer.py": ("transformers", ()),
    "frameworks/lightning_trainer.py": ("lightning", ("--devices", "2", "--num-nodes", "2")),
}
# Each as a job, under each launcher; test_cluster_run.py has `rankup run` on both nodes. And the ranks of a node: an
# import of transformers takes four seconds, and tests/examples starts two on one node.
PAIRS = (
    ("ddp_plain.py", "submit-torchrun", 2),
    ("frameworks/deepspeed_environment.py", "submit-srun", 2),
    ("frameworks/accelerate_loop.py", "submit-mpirun", 2),
    pytest.param("frameworks/hf_trainer.py", "rankup-run", 1, marks=pytest.mark.campaign),
    ("frameworks/lightning_trainer.py", "submit-srun", 2),
    pytest.param("frameworks/lightning_trainer.py", "submit-mpirun", 2, marks=pytest.mark.campaign),
)


@pytest.mark.repeated
@aborts_at_exit
@pytest.mark.parametrize(("script", "way", "nproc"), PAIRS)
def test_a_script_made_for_others_trains_one_model_in_one_world(
    cluster: Lab, script: str, way: str, nproc: int
):
    package, arguments = SCRIPTS[script]
    if package and not find_spec(package):
        pytest.skip(f"{package} is not installed: pip install 'rankup[peers]'")
    said = WAYS[way](cluster, (str(EXAMPLES / script), *arguments), nproc)
    ranks = sorted(DONE.findall(said))
    assert [(rank, size) for rank, size, _ in ranks] == [
        (str(rank), str(2 * nproc)) for rank in range(2 * nproc)
    ], said
    assert len({result for _, _, result in ranks}) == 1, said
