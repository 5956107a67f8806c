#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1 torchrun --standalone --nproc_per_node=2 train.py
CUDA_VISIBLE_DEVICES=$DEVICES torchrun --standalone --nproc_per_node=4 train.py
