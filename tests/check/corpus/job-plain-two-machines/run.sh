#!/bin/bash
# usage: run.sh RANK HEAD, on each of two machines
RANK=${1:?rank}
HEAD=${2:?head}
torchrun --nnodes=2 --node_rank="$RANK" --nproc_per_node=4 --master_addr="$HEAD" --master_port=29500 train.py
