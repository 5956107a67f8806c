--- job.sh
#!/bin/bash
#SBATCH --requeue --open-mode=append --signal=B:TERM@300
srun python train.py
--- train.py
import signal
import torch

# by hand: scontrol requeue
signal.signal(signal.SIGTERM, lambda *_: torch.save({}, "state.pt"))
