#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=16

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR
cat > "worker.$SLURM_JOB_ID.sh" <<'EOF'
#!/bin/bash
torchrun --nnodes=$SLURM_NNODES --node_rank=$SLURM_NODEID --nproc_per_node=4 \
  --master_addr=$MASTER_ADDR --master_port=$((10000 + SLURM_JOB_ID % 20000)) train.py
EOF
srun bash "worker.$SLURM_JOB_ID.sh"
