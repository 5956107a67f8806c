#!/bin/bash
#SBATCH --nodes=2 --gpus-per-node=8
deepspeed --hostfile "hosts.$SLURM_JOB_ID" train.py --deepspeed_config zero2.json
