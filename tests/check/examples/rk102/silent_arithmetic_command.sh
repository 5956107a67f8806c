#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=2
#SBATCH --time=2:00:00
#SBATCH --output=%x-%j.out
srun --ntasks-per-node=1 bash -c "torchrun --nnodes=$SLURM_NNODES --nproc_per_node=2 --node-rank=$SLURM_NODEID --rdzv_id=$SLURM_JOB_ID --rdzv_conf=is_host=\$(((SLURM_NODEID)) && echo 0 || echo 1) --rdzv_backend=c10d --rdzv_endpoint=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1):29500 train.py"
