#!/bin/bash
#PBS -l nodes=2:ppn=16:gpus=4
cd $PBS_O_WORKDIR
mympirun --hybrid 2 torchrun --nnodes 2 --nproc_per_node 4 --rdzv_id $PBS_JOBID --rdzv_backend c10d \
    --rdzv_endpoint $(hostname) train.py
