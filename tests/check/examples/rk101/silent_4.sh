#!/bin/bash
# a script without directives is started on each node by somebody
torchrun --nnodes=2 --node_rank=$1 --master_addr=$2 train.py
