#!/bin/bash
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:SIGUSR1@120
save() { kill -USR1 "$pid"; wait "$pid"; }
trap save SIGUSR1
python train.py & pid=$!
wait $pid
