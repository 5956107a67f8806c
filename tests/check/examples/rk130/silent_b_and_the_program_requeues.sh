--- job.sh
#!/bin/bash
#SBATCH --requeue --open-mode=append --signal=B:TERM@300
srun python train.py
--- train.py
import os
import signal
import subprocess
import torch

job = os.environ["SLURM_JOB_ID"]
signal.signal(signal.SIGTERM, lambda *_: subprocess.run(["scontrol", "requeue", job]))
