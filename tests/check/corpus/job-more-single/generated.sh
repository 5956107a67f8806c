#!/bin/bash
# submits one job for each learning rate
for rate in 0.1 0.01; do
  cat > "job-$rate.sh" <<EOF
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:1
#SBATCH --job-name=rate-$rate
srun python train.py --rate $rate
EOF
  sbatch "job-$rate.sh"
done
