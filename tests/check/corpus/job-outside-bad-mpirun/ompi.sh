#!/bin/bash
#SBATCH --partition=gpu
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --time=01:00:00
ml OpenMPI/4.1.5-GCC-12.3.0 PyTorch/2.1.2-foss-2023a-CUDA-12.1.1
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)
export MASTER_PORT=$((RANDOM % 20000 + 20000))
mpirun -np $SLURM_NTASKS --map-by ppr:4:node --bind-to none -x MASTER_ADDR -x MASTER_PORT -x PATH -x LD_LIBRARY_PATH \
    python train_mpi.py
