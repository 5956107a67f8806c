#!/bin/bash
#SBATCH --nodes=1 --ntasks=1 --gpus-per-node=2 --cpus-per-task=16
export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK / 2))
srun nsys profile -o "trace.%q{SLURM_JOB_ID}" --trace=cuda,nvtx torchrun --standalone --nproc_per_node=2 train.py --epochs 1
