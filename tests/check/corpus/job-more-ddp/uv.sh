#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:rtx8000:2
#SBATCH --cpus-per-task=12
cd "${SLURM_SUBMIT_DIR:-$(dirname "$0")}" || exit 1
srun uv run --frozen torchrun --standalone --nproc_per_node=gpu train.py
