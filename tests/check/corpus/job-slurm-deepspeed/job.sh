#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --exclusive
HOSTFILE=hostfile.$SLURM_JOB_ID
for host in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do echo "$host slots=8"; done > "$HOSTFILE"
deepspeed --hostfile "$HOSTFILE" --master_addr "$HOSTNAME" train.py --deepspeed --deepspeed_config zero2.json
