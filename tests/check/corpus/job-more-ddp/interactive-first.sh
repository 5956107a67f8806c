#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=2 --cpus-per-task=8 --time=0:30:00
# also runs on a workstation: ./interactive-first.sh
GPUS=${SLURM_GPUS_ON_NODE:-$(nvidia-smi --list-gpus | wc -l)}
if [ -n "$SLURM_JOB_ID" ]; then cd "$SLURM_SUBMIT_DIR"; else cd "$(dirname "$0")"; fi
torchrun --standalone --nproc_per_node="$GPUS" train.py
