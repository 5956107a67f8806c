#!/bin/bash
#SBATCH --nodes=3
#SBATCH --ntasks=3
#SBATCH --gres=gpu:2
launch() {
    local node=$1 idx=$2
    srun --nodes=1 --ntasks=1 --nodelist="$node" --export=ALL \
        torchrun --nnodes="$SLURM_JOB_NUM_NODES" --node_rank="$idx" --nproc_per_node=2 \
        --master_addr="${HOSTS[0]}" --master_port="$PORT" train.py &
}
mapfile -t HOSTS < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
PORT=$((12000 + SLURM_JOB_ID % 5000))
for i in "${!HOSTS[@]}"; do
    launch "${HOSTS[$i]}" "$i"
done
wait
