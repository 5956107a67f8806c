#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=4
cd $PBS_O_WORKDIR
HEAD=$(head -n 1 $PBS_NODEFILE)
RANK=0
for node in $(sort -u $PBS_NODEFILE); do
    ssh $node "cd $PWD; nohup torchrun --nnodes 2 --nproc_per_node 4 --node_rank $RANK --master_addr $HEAD $PWD/train.py > log 2>&1 &"
    RANK=$((RANK + 1))
done
sleep 3600
