--- job.sh
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
python train.py
--- train.py
import lightning as L

trainer = L.Trainer(accelerator="gpu", devices=4)
trainer.fit(Model())
