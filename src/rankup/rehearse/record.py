"""Which variables of a recorded program are kept."""

from __future__ import annotations

import os
from collections.abc import Mapping

_PREFIXES = (
    "SLURM", "PBS_", "PALS_", "PMI", "OMPI_", "MPI_", "MV2_", "PRTE", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_",
    "NODE_RANK",
    "GROUP_", "CUDA_", "ROCR_", "HIP_", "ZE_", "NCCL_", "RCCL_", "GLOO_", "UCX_", "FI_", "OMP_", "MKL_",
    "TORCH", "PET_",
    "NPROC", "NNODES", "WORLD", "HOSTNAME", "HEAD", "ADDR", "PORT", "ACCELERATE_", "DEEPSPEED", "HOROVOD_",
    "APPTAINERENV_",
    "SINGULARITYENV_", "CROSS_", "DS_", "NUM_", "JAX_", "RDZV", "LD_LIBRARY_PATH", "PYTHONPATH", "PATH",
    "TMPDIR", "HF_",
)  # fmt: skip
_SECRETS = ("TOKEN", "SECRET", "PASSWORD", "API_KEY", "CREDENTIAL")


def environment_of(env: Mapping[str, str]) -> dict[str, str]:
    """The variables by which ranks find each other and their devices; neither ours nor secrets."""
    kept = {
        name: value
        for name, value in env.items()
        if name.startswith(_PREFIXES)
        and not name.startswith("RANKUP_REHEARSE")
        and not any(word in name.upper() for word in _SECRETS)
    }
    for name in ("PYTHONPATH", "PATH"):
        parts = [one for one in kept.get(name, "").split(os.pathsep) if one and "rankup-rehearse-" not in one]
        kept.pop(name, None)
        if parts:
            kept[name] = os.pathsep.join(parts)
    return kept
