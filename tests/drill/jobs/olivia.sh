#!/bin/bash
#SBATCH --job-name=olivia
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --time=00:10:00
#SBATCH --no-requeue
#SBATCH --output=olivia-%j.out

head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export OMP_NUM_THREADS=1

srun python -m torch.distributed.run --nnodes=2 --nproc-per-node=1 --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d \
  --rdzv-endpoint="$head_node:29513" plain.py
