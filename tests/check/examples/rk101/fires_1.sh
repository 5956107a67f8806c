#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
accelerate launch --num_machines 2 --num_processes 8 --main_process_ip $HOSTNAME train.py
