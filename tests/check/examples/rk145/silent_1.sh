#!/bin/bash
#SBATCH --nodes=1
if [ -n "$SLURM_JOB_ID" ]; then HERE=$SLURM_SUBMIT_DIR; else HERE=$(dirname "$0"); fi
python "$HERE/train.py"
