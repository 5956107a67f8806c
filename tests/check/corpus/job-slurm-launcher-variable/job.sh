#!/bin/bash
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1          # one agent per node
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=96
#SBATCH --time 20:00:00

set -eo pipefail
GPUS_PER_NODE=8
NNODES=$SLURM_NNODES
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=6000

CMD=" \
    train.py \
    --epochs 90 \
    --batch-size 128 \
    "
export LAUNCHER="python -u -m torch.distributed.run \
    --nproc_per_node $GPUS_PER_NODE \
    --nnodes $NNODES \
    --rdzv_endpoint $MASTER_ADDR:$MASTER_PORT \
    --rdzv_backend c10d \
    --max_restarts 0 \
    --tee 3 \
    "
srun --jobid "$SLURM_JOB_ID" bash -c "$LAUNCHER $CMD" 2>&1 | tee main_log.txt
