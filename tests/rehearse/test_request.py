"""A job's directives → the nodes that its scheduler would give, or what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankup.check.document import Document
from rankup.check.facts.job.reader import read_job
from rankup.errors import RankupError
from rankup.rehearse.rehearse import Options
from rankup.rehearse.report import report_of
from rankup.rehearse.request import Sizes, allocation_of
from rehearse.scripts import rehearsed


def request_of(*directives: str):
    text = "#!/bin/bash\n" + "".join(f"#SBATCH {line}\n" for line in directives)
    return read_job(Document("job.sh", text + "srun python train.py\n")).request


@pytest.mark.parametrize(
    ("directive", "said"),
    [
        ("--cpus-per-task=72.", 'Invalid numeric value "72." for --cpus-per-task.'),
        ("-c 72.", 'Invalid numeric value "72." for --cpus-per-task.'),
        ("-Hn0", 'Invalid numeric value "0" for --ntasks.'),
        ("--nodes=two", '"two" is not a valid node count'),
        ("--time=1h", "Invalid --time specification"),
        ("-t 1:2:3:4", "Invalid --time specification"),
        ("--time-min=90m", "Invalid --time-min specification"),
        ("--mem=32GBB", "Invalid --mem specification"),
        ("--mem-per-cpu=1.5G", "Invalid --mem-per-cpu specification"),
        ("--tasks-per-nodes=4", "unrecognized option '--tasks-per-nodes'"),
        ("--label", "unrecognized option '--label'"),
        ("--cpus=2", "option '--cpus' is ambiguous; possibilities: '--cpus-per-gpu' '--cpus-per-task'"),
    ],
)
def test_what_sbatch_refuses_is_refused(directive: str, said: str):
    with pytest.raises(RankupError, match="sbatch-refuses") as caught:
        allocation_of(request_of(directive), Sizes(), "job")
    assert said in caught.value.message


@pytest.mark.parametrize(
    "directive",
    [
        "--cpus-per-task=<N>", "--nodes=1-2", "--nodes=+2", "--cpus-per-task=+8", "--time=1-12", "--time=UNLIMITED",
        "--mem=32gb", "--mem=<MEMORY>", "--exclusiv", "--time-m=5", "--container-image=x.sqsh",
    ],
)  # fmt: skip
def test_what_sbatch_takes_or_nobody_knows_is_rehearsed(directive: str):
    assert allocation_of(request_of(directive), Sizes(), "job")[0].num_nodes in (1, 2)


def test_an_option_that_only_a_plug_in_can_have_is_said_to_be_assumed():
    assumed = allocation_of(request_of("--scratch-disk=9"), Sizes(), "job")[2]
    assert assumed == ["sbatch itself has no option --scratch-disk: a plug-in of the site must add it"]


def test_a_job_file_is_rendered_first(tmp_path: Path):
    (tmp_path / "job.toml").write_text("[run]\nscript = 'train.py'\n")
    with pytest.raises(RankupError) as caught:
        report_of(tmp_path / "job.toml", Sizes(), Options(), {})
    assert caught.value.code == "not-a-script"
    assert "rankup render job.toml > job.sh" in str(caught.value.hint)


def test_srun_obeys_directives_that_sbatch_hands_on_in_variables(tmp_path: Path):
    lines = ("--gpu-bind=single:1", "-m cyclic", "-O", "--gpus-per-node=2", "--nodes=1")
    job = allocation_of(request_of(*lines), Sizes(), "job")[0]
    assert job.handed_on == {
        "SLURM_GPU_BIND": "single:1", "SLURM_DISTRIBUTION": "cyclic", "SLURM_OVERCOMMIT": "1",
    }  # fmt: skip
    body = "srun --ntasks=2 bash -c 'echo $SLURM_PROCID sees $CUDA_VISIBLE_DEVICES'; python train.py"
    report = rehearsed(tmp_path, body, lines)
    assert {"0 sees 0", "1 sees 1"} <= set(report.rehearsal.output.splitlines())
