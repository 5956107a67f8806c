"""The scheduler that ``rankup drill --here`` pretends where none is installed: what its jobs meet, in bash alone."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rankup.drill.pbs import PbsQueue
from rankup.drill.pretended import PretendedScheduler, pretended_scheduler
from rankup.drill.queue import Queue
from rankup.drill.slurm import SlurmQueue
from rankup.rehearse import sandbox

pytestmark = pytest.mark.skipif(bool(sandbox.available()), reason=f"no sandbox: {sandbox.available()}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    return tmp_path / "job"


@pytest.fixture
def slurm() -> Iterator[PretendedScheduler]:
    with pretended_scheduler("slurm") as scheduler:
        yield scheduler


@pytest.fixture
def pbs() -> Iterator[PretendedScheduler]:
    with pretended_scheduler("pbs") as scheduler:
        yield scheduler


def submit(
    queue: Queue, folder: Path, *lines: str, options: tuple[str, ...] = (), name: str = "job.sh"
) -> str:
    script = folder / name
    script.write_text("\n".join(["#!/bin/bash", *lines, ""]))
    return queue.submit(folder, script, (), options)


def until(condition: Callable[[], object], seconds: float = 30) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.05)


def over(queue: Queue, folder: Path) -> None:
    until(lambda: not queue.jobs(folder, ()))


def words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


@pytest.mark.slow
def test_what_a_job_writes_into_its_folder_stays_and_what_it_writes_elsewhere_is_known(
    slurm, folder, tmp_path
):
    queue, elsewhere = SlurmQueue(slurm.ask), tmp_path.parent / "elsewhere"
    job = submit(
        queue, folder, "#SBATCH --nodes=2", "#SBATCH --output=%x-%j.log",
        "srun bash -c 'hostname; touch $SLURM_PROCID'", f"touch {elsewhere}",
    )  # fmt: skip
    over(queue, folder)
    assert queue.record(job).startswith("JobState COMPLETED, Restarts 0, ExitCode 0:0")
    assert sorted(words(folder / f"job.sh-{job}.log")) == ["node1", "node2"]
    assert (folder / "0").exists() and (folder / "1").exists()
    assert not elsewhere.exists() and slurm.lost(elsewhere) and not slurm.lost(folder / "0")


@pytest.mark.slow
def test_each_node_has_the_python_that_rankup_runs_on_also_if_it_lies_below_tmp(folder, monkeypatch):
    with tempfile.TemporaryDirectory(prefix="rankup-python-", dir="/tmp") as below:
        python = Path(below, "python")
        python.symlink_to(sys.executable)
        monkeypatch.setattr(sys, "executable", str(python))
        with pretended_scheduler("slurm") as slurm:
            queue = SlurmQueue(slurm.ask)
            submit(
                queue, folder, "#SBATCH --nodes=2", "srun bash -c 'scontrol --version && touch $SLURM_PROCID'"
            )
            over(queue, folder)
    assert (folder / "0").exists() and (folder / "1").exists()


WAITS = ("trap 'echo heard >>heard; exit 3' USR1", "echo $SLURM_RESTART_COUNT. >>begun", "sleep 60 & wait")


@pytest.mark.slow
def test_the_batch_shell_hears_of_its_time_limit_and_a_step_gets_what_srun_gets(slurm, folder):
    queue = SlurmQueue(slurm.ask)
    job = submit(
        queue, folder, "#SBATCH --signal=B:USR1@60",
        "trap 'echo shell >>heard' USR1",
        "srun bash -c 'trap \"echo step >>heard; exit\" USR1; touch up; sleep 60 & wait' & child=$!",
        "until [ -e up ] && [ -e heard ]; do sleep 0.05; done",  # a busy machine starts the step after the signal
        "kill -USR1 $child; wait $child; exit 3",
        options=("--time=00:01:02",),
    )  # fmt: skip
    over(queue, folder)
    assert words(folder / "heard") == ["shell", "step"]
    assert "JobState FAILED" in queue.record(job) and "ExitCode 3:0" in queue.record(job)


def test_a_job_that_is_preempted_runs_again_and_one_that_is_cancelled_does_not(slurm, folder):
    queue = SlurmQueue(slurm.ask)
    job = submit(queue, folder, *WAITS)
    until(lambda: words(folder / "begun") == ["."])
    assert queue.requeue(job).code == 0
    until(lambda: words(folder / "begun") == [".", "1."])
    assert [each.state for each in queue.jobs(folder, [job])] == ["RUNNING"]
    assert queue.cancel(job).code == 0
    over(queue, folder)
    assert queue.record(job).startswith("JobState CANCELLED, Restarts 1")
    assert queue.requeue(job).code != 0


def test_a_job_that_forbids_it_is_not_requeued(slurm, folder):
    queue = SlurmQueue(slurm.ask)
    job = submit(queue, folder, "#SBATCH --no-requeue", *WAITS)
    until(lambda: words(folder / "begun"))
    assert "may not be requeued" in queue.requeue(job).err


def test_at_its_time_limit_a_job_is_ended_though_it_hears_nothing(slurm, folder):
    queue = SlurmQueue(slurm.ask)
    job = submit(queue, folder, "touch begun", "sleep 60")
    until((folder / "begun").exists)
    queue.shorten(job, 1)
    over(queue, folder)
    assert "JobState TIMEOUT" in queue.record(job)


@pytest.mark.slow
def test_steps_have_time_to_save_when_the_batch_shell_dies_at_the_time_limit(slurm, folder):
    queue = SlurmQueue(slurm.ask)
    save = "trap 'sleep 2; touch saved; exit' TERM; touch begun; while :; do sleep 0.1; done"
    job = submit(queue, folder, f'srun bash -c "{save}"')
    until((folder / "begun").exists)
    queue.shorten(job, 1)
    over(queue, folder)
    assert "JobState TIMEOUT" in queue.record(job)
    assert (folder / "saved").exists()


def test_a_job_can_requeue_itself(slurm, folder):
    queue = SlurmQueue(slurm.ask)
    job = submit(
        queue, folder, "echo $SLURM_RESTART_COUNT. >>begun",
        "[ -n \"$SLURM_RESTART_COUNT\" ] || { scontrol requeue $SLURM_JOB_ID; sleep 60; }",
    )  # fmt: skip
    over(queue, folder)
    assert words(folder / "begun") == [".", "1."]
    assert queue.record(job).startswith("JobState COMPLETED, Restarts 1")


@pytest.mark.slow
def test_a_job_of_pbs_submits_its_successor_which_waits_for_it_and_may_be_deleted(pbs, folder):
    queue = PbsQueue(pbs.ask)
    job = submit(
        queue, folder, "#PBS -l select=2:mpiprocs=1", "#PBS -v GIVEN=yes",
        "cd $PBS_O_WORKDIR", "echo $PBS_JOBID $GIVEN >>begun",
        "[ $(wc -l <begun) -gt 1 ] && exit",
        "qsub -W depend=afterany:$PBS_JOBID job.sh >next",
        "qdel $(qsub -W depend=afterok:$PBS_JOBID job.sh)",
        "pbsdsh -- bash -c 'hostname; echo $GIVEN' >hosts; exit 4",
    )  # fmt: skip
    over(queue, folder)
    assert words(folder / "begun") == [job, "yes", *words(folder / "next"), "yes"]
    assert sorted(words(folder / "hosts")) == ["node1", "node2", "yes", "yes"]
    assert "Exit_status 4" in queue.record(job)
    assert "Exit_status 0" in queue.record(words(folder / "next")[0])


def test_a_command_of_the_user_submits_as_on_a_login_node(slurm, folder):
    queue = SlurmQueue(slurm.ask)
    submit(queue, folder, "echo $RANKUP_RUN >>begun", "exit 0")
    done = queue.ask(["bash", "-c", "RANKUP_RUN=mine sbatch job.sh"], folder)
    assert done.out == "Submitted batch job 2\n", done.err
    over(queue, folder)
    assert sorted(words(folder / "begun")) == ["mine"]


def test_nothing_is_left_of_a_job_when_the_scheduler_goes(folder):
    with pretended_scheduler("slurm") as scheduler:
        submit(SlurmQueue(scheduler.ask), folder, "touch begun; sleep 61.5")
        until((folder / "begun").exists)
    assert not scheduler.state.exists()
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(b"61.5" in line for line in lines)
