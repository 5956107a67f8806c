"""The environment of a submit: without what belongs to the job, or the ranks, that we may be inside of.

sbatch hands its environment on to the job, and reads half of it as options. A job submitted from inside another one
would take over the outer one's tasks per node, ranks, ports and devices, and a variable beats the script's directives.
"""

from __future__ import annotations

from collections.abc import Mapping

from rankup.core.rundir import RUN_DIR_VARIABLE

# Which job and which rank a process is (never a setting), and options that change what clients print or ask.
_IDENTITY = (
    *("SLURM_", "SLURMD_", "SRUN_", "SQUEUE_", "SACCT_", "SCANCEL_", "PBS_"),
    *("PMI_", "PMI2_", "PMIX_", "PALS_", "HYDI_", "MPI_LOCAL", "OMPI_COMM_", "MV2_COMM_", "TORCHELASTIC_"),
)
_NAMES = frozenset(
    {
        *(
            "RANK",
            "LOCAL_RANK",
            "NODE_RANK",
            "GROUP_RANK",
            "WORLD_SIZE",
            "LOCAL_WORLD_SIZE",
            "GROUP_WORLD_SIZE",
        ),
        *("ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT", "INIT_FILE"),
        *(RUN_DIR_VARIABLE, "RANKUP_MARK", "RANKUP_INIT_FILE"),
        *("RANKUP_RUN", "RANKUP_TASK", "RANKUP_SUCCESSOR"),
    }
)
# Where the scheduler is: without them its clients find nothing.
_KEPT = frozenset(
    {
        *("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT"),
        *(
            "PBS_CONF_FILE",
            "PBS_SERVER",
            "PBS_DEFAULT",
            "PBS_EXEC",
            "PBS_HOME",
            "PBS_PRIMARY",
            "PBS_SECONDARY",
        ),
    }
)
# Set in a login shell on purpose, these say who pays and where jobs may run; all other SBATCH_* (sizes, times, signals,
# names) would overrule the description of the job without a word, so they go, as do those of an outer job.
_DESTINATION = ("ACCOUNT", "PARTITION", "QOS", "RESERVATION", "CLUSTERS", "CONSTRAINT", "WCKEY")
_DESTINATIONS = frozenset(f"{client}_{what}" for client in ("SBATCH", "SALLOC") for what in _DESTINATION)
# What the outer job was given, or its mpirun set up: gone when it ends. In a login shell they are the user's settings.
_OF_THE_OUTER_JOB = ("OMPI_", "PRTE_", "MV2_")
_GIVEN = frozenset(
    {
        *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
        *("ZE_AFFINITY_MASK", "TMPDIR", "NCPUS", "OMP_NUM_THREADS"),
    }
)
_INSIDE = (
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "PBS_JOBID",
    "OMPI_COMM_WORLD_RANK",
    "TORCHELASTIC_RUN_ID",
    RUN_DIR_VARIABLE,
)


def clean_environment(env: Mapping[str, str]) -> dict[str, str]:
    """``env`` for a submit, the same for every scheduler."""
    inside = any(env.get(name) for name in _INSIDE)
    return {name: value for name, value in env.items() if not _foreign(name, inside)}


def _foreign(name: str, inside: bool) -> bool:
    if name in _KEPT:
        return False
    if name.startswith(("SBATCH_", "SALLOC_")):
        return inside or name not in _DESTINATIONS
    if name in _NAMES or name.startswith(_IDENTITY):
        return True
    return inside and (name in _GIVEN or name.startswith(_OF_THE_OUTER_JOB))
