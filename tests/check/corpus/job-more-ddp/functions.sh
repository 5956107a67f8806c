#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
log() { echo "$(date +%T) $*"; }
agent() {
  torchrun --nnodes=2 --node_rank="$SLURM_NODEID" --nproc_per_node=4 --master_addr="$1" --master_port=29500 train.py
}
export -f agent
log "starting on $SLURM_JOB_NODELIST"
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun bash -c "agent $MASTER_ADDR"
