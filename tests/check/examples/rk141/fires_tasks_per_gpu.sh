--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4 --ntasks-per-gpu=1 --cpus-per-task=8
python train.py
--- train.py
print("one process")
