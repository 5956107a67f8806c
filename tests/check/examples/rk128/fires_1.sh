#!/bin/bash
#SBATCH --signal=B:TERM@120
handler() { echo "time is up"; touch STOP; }
trap handler SIGTERM
python train.py --epochs 90
