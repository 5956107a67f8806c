#!/bin/bash
#SBATCH --nodes=1 --ntasks=1 --gpus-per-node=4 --cpus-per-task=32
#SBATCH --time=08:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=train-%j.log

rm -f STOP
trap 'touch STOP' USR1
srun torchrun --standalone --nproc_per_node=4 train.py --epochs 200 &
child=$!
while wait "$child"; code=$?; kill -0 "$child" 2>/dev/null; do :; done
if [ -e STOP ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
