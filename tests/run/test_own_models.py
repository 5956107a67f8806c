"""Processes that each train a model of their own are told so, and no others; what scripts for srun find."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from rankup.core.rundir import RunDir
from rankup.run.separate_models import count_separate_models, optimizer_steps, with_torch_hook
from rankup_process import Started, script

pytestmark = pytest.mark.usefixtures("warm_python")

# Both step alone at first, one of them in a group later; in the end two marks are there.
TRAINS = """
import json, os, pathlib, torch
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "NODE_RANK")
print(json.dumps([os.environ[name] for name in names]))
run, rank = pathlib.Path(os.environ["RANKUP_RUN_DIR"]), int(os.environ["RANK"])
marks = lambda: sorted(path.name for path in run.glob("trained-alone-*"))
def step():
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    torch.optim.SGD([weight], lr=.1).step()
step()
assert f"trained-alone-{rank}" in marks()
torch.distributed.init_process_group("gloo")
if rank == 0:
    step()  # a group that is formed later: this is one model after all
torch.distributed.barrier()
assert marks() == ["trained-alone-1"], marks()
torch.distributed.barrier()
torch.distributed.destroy_process_group()
(run / f"trained-alone-{rank}").touch()
"""


def test_who_trains_alone_is_told_from_who_joins_a_group(tmp_path):
    run = Started(tmp_path, "--nproc-per-node", "2", script(tmp_path, TRAINS), env={"SLURM_PROCID": "7"}).end(
        150
    )
    assert run.code == 0, run.err
    found = sorted(json.loads(line.partition("] ")[2]) for line in run.out.splitlines())
    assert found == [[str(r), str(r), "2", str(r), str(r), "2", "0"] for r in range(2)]
    (said,) = [line for line in run.own if "own model" in line]
    assert said.startswith("rankup: 2 processes each trained their own model: they are in no process group.")


def test_a_study_learns_how_many_optimizer_steps_a_script_takes(tmp_path):
    steps = TRAINS.partition("step()\nassert")[0].replace('"SLURM_NTASKS", ', "") + "step(); step(); step()\n"
    one = Started(tmp_path, script(tmp_path, steps), env={"RANKUP_COUNT_OPTIMIZER_STEPS": "1"}).end()
    assert (one.code, optimizer_steps(RunDir(one.run_dir))) == (0, 3)
    folder = tmp_path / "other"
    folder.mkdir()
    other = Started(folder, script(folder, steps)).end()
    assert (other.code, optimizer_steps(RunDir(other.run_dir))) == (0, None)


def test_scripts_that_do_not_train_are_told_nothing(tmp_path):
    run = Started(tmp_path, "--nproc-per-node", "2", script(tmp_path, "print('ran')")).end()
    assert (run.code, sorted(run.out.splitlines())) == (0, ["[rank 0] ran", "[rank 1] ran"])
    assert len(run.own) == 2 and "own model" not in "".join(run.own)
    # One rank that trains is what many scripts do.
    (run.run_dir / "trained-alone-0").touch()
    assert count_separate_models(RunDir(run.run_dir), ended=True) == ""


@pytest.mark.slow
@pytest.mark.own_python
def test_the_count_of_steps_imports_no_torch_into_a_script(tmp_path):
    name = script(tmp_path, "import sys; print('torch' in sys.modules)")
    run = Started(tmp_path, name, env={"RANKUP_COUNT_OPTIMIZER_STEPS": "1"}).end()
    assert (run.code, run.out) == (0, "False\n")


def test_one_process_finds_what_srun_would_give_it_but_the_number_of_tasks(tmp_path):
    show = "import os; print([os.environ.get('SLURM_' + n) for n in ('PROCID', 'LOCALID', 'NTASKS')])"
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    run = Started(tmp_path, script(tmp_path, show), env=env).end()
    assert run.out == "['0', '0', None]\n"
    run = Started(
        tmp_path, "--name", "y", script(tmp_path, "import os; os.environ['SLURM_NTASKS']", "y.py")
    ).end()
    assert "hint:  written for srun? read RANK, LOCAL_RANK and WORLD_SIZE" in run.err


AGENT = """
import torch
from torch.distributed.elastic.agent.server import api
try:
    raise torch.distributed.DistStoreError("Timed out after 301 seconds")
except Exception:
    api.logger.exception("Error waiting on exit barrier. Elapsed: %s seconds", 301)
api.logger.error("Worker group failed")
"""


@pytest.mark.slow
@pytest.mark.own_python
def test_a_torchrun_whose_ranks_have_ended_well_prints_no_stack(tmp_path):
    env = {name: value for name, value in os.environ.items() if name != "RANK"}
    env |= with_torch_hook({}) | {"RANKUP_RUN_DIR": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", AGENT], env=env, capture_output=True, text=True, check=True)
    assert [line.rpartition("] ")[2] for line in said.stderr.splitlines()] == ["Worker group failed"]
