#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1
cat > worker.sh <<'EOF'
torchrun --nnodes=2 --nproc_per_node=4 --node_rank=$SLURM_NODEID --master_addr=$1 train.py
EOF
srun bash worker.sh "$(hostname)"
