--- job.sh
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$(hostname):29500 train.py
--- train.py
from lightning.pytorch import Trainer

trainer = Trainer(accelerator="gpu", devices=4, num_nodes=1)
trainer.fit(Model())
