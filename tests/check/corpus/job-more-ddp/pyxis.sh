#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --exclusive
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=29500
declare -a ARGS=(--container-image ./image.sqsh --container-mounts "$PWD:/work" --container-workdir /work)
srun -l "${ARGS[@]}" bash -c 'torchrun --nnodes=$SLURM_NNODES --node_rank=$SLURM_NODEID --nproc_per_node=8   --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT train.py'
