"""A submit from inside a job is not poisoned by it, and one from a login shell keeps what its user set on purpose."""

from __future__ import annotations

import pytest

from rankup.schedulers.base import scheduler_named

USERS = {
    "HOME": "/home/a", "PATH": "/bin", "LD_LIBRARY_PATH": "/opt/lib", "VIRTUAL_ENV": "/venv", "NCCL_DEBUG": "INFO",
    "FI_PROVIDER": "cxi", "RANKUP_DATA": "/data", "RANKUP_SITES": "/sites", "RANKUP_DEBUG": "1", "WORLD": "1",
    "SLURMCONF": "mine",
}  # fmt: skip
WHERE = {
    "SLURM_CONF": "/etc/slurm.conf", "SLURM_CLUSTERS": "east", "SLURM_JWT": "token",
    "PBS_SERVER": "head", "PBS_DEFAULT": "head", "PBS_CONF_FILE": "/etc/pbs.conf", "PBS_EXEC": "/opt/pbs",
}  # fmt: skip
RANK = {
    "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "0", "NODE_RANK": "0",
    "ROLE_RANK": "3", "ROLE_WORLD_SIZE": "8", "MASTER_ADDR": "node1", "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0", "PMI_RANK": "3", "PMIX_RANK": "3",
    "PALS_RANKID": "3", "OMPI_COMM_WORLD_RANK": "3", "MV2_COMM_WORLD_RANK": "3", "MPI_LOCALRANKID": "1",
    "RANKUP_RUN_DIR": "/runs/demo/1", "RANKUP_MARK": "abc", "RANKUP_INIT_FILE": "/runs/demo/1/init-file",
}  # fmt: skip
SLURM_JOB = {
    "SLURM_JOB_ID": "12", "SLURM_NTASKS_PER_NODE": "2", "SLURM_CPUS_PER_TASK": "8", "SLURM_MEM_PER_NODE": "1024",
    "SRUN_CPUS_PER_TASK": "8", "SBATCH_PARTITION": "gpu", "CUDA_VISIBLE_DEVICES": "1", "TMPDIR": "/tmp/job12",
    "OMPI_MCA_orte_hnp_uri": "123.0;tcp://10.0.0.1", "OMP_NUM_THREADS": "1",
}  # fmt: skip
PBS_JOB = {
    "PBS_JOBID": "12.head",
    "PBS_O_WORKDIR": "/home/a",
    "PBS_NODEFILE": "/var/nodes",
    "NCPUS": "8",
    "TMPDIR": "/x",
    "RANKUP_RUN": "/runs/outer",
    "RANKUP_TASK": "3",
    "RANKUP_SUCCESSOR": "1",
}


@pytest.mark.parametrize("name", ["slurm", "pbs", "local"])
@pytest.mark.parametrize("job", [SLURM_JOB, PBS_JOB, RANK], ids=["slurm", "pbs", "rank"])
def test_nothing_of_the_job_around_it_reaches_the_new_job(name: str, job: dict[str, str]):
    assert scheduler_named(name).clean(USERS | WHERE | job) == USERS | WHERE


def test_where_jobs_may_run_and_who_pays_is_kept_from_a_login_shell():
    # These, as every user of these variables knows, fill in what the job does not say.
    chosen = {
        "SBATCH_ACCOUNT": "lab",
        "SBATCH_PARTITION": "gpu",
        "SBATCH_QOS": "short",
        "SALLOC_ACCOUNT": "lab",
    }
    assert scheduler_named("slurm").clean(USERS | chosen) == USERS | chosen


def test_sizes_times_and_signals_are_the_jobs_own_business():
    # They beat the script's directives: the job would not be the one that was described.
    overruling = {
        "SBATCH_TIMELIMIT": "1",
        "SBATCH_SIGNAL": "TERM",
        "SBATCH_NO_REQUEUE": "1",
        "SBATCH_WAIT": "1",
    }
    assert scheduler_named("slurm").clean(USERS | overruling) == USERS


def test_answers_are_not_filtered_by_the_users_habits():
    habits = {
        "SQUEUE_STATES": "R",
        "SQUEUE_FORMAT": "%i",
        "SACCT_FORMAT": "JobID",
        "SCANCEL_INTERACTIVE": "1",
    }
    assert scheduler_named("slurm").clean(USERS | habits) == USERS


def test_settings_of_mpi_and_of_the_machine_are_kept_from_a_login_shell():
    settings = {
        "OMPI_MCA_btl": "^openib",
        "MV2_USE_CUDA": "1",
        "CUDA_VISIBLE_DEVICES": "0",
        "TMPDIR": "/scratch",
    }
    assert scheduler_named("local").clean(USERS | settings) == USERS | settings
