#!/bin/bash
#BSUB -n 2
#BSUB -R "span[ptile=1]"
#BSUB -gpu "num=4:mode=exclusive_process"
#BSUB -W 2:00
head=$(echo "$LSB_MCPU_HOSTS" | cut -d ' ' -f 1)
blaunch -z "$LSB_HOSTS" "cd $LS_SUBCWD && torchrun --nnodes=2 --nproc_per_node=4 --rdzv_id=$LSB_JOBID   --rdzv_backend=c10d --rdzv_endpoint=$head:29500 train.py"
