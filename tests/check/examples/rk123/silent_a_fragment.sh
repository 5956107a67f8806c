# add this to your script
module load cuda
#SBATCH --gpus-per-node=4
#SBATCH --nodes=2
srun python train.py
