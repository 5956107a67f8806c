#!/bin/bash
#SBATCH -C gpu -q regular -A m1234 --image=nersc/pytorch:ngc-23.07-v0 --module=gpu,nccl-2.18
#SBATCH -N 2 --ntasks-per-node=1 --gpus-per-node=4 -c 128
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export NCCL_NET="AWS Libfabric" FI_CXI_DISABLE_HOST_REGISTER=1
srun -u shifter bash -c "
  torchrun --nnodes=$SLURM_NNODES --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:29500 train.py"
