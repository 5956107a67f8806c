#!/bin/bash
#PBS -l select=8:ncpus=8:ngpus=1
cd "$PBS_O_WORKDIR"
torchrun --standalone --nproc_per_node=8 all_chunks_on_one_node.py
