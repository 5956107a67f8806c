--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --partition=gpu_full_node
torchrun --standalone --nproc_per_node=2 train.py
--- train.py
import torch.distributed as dist

dist.init_process_group(backend="nccl")
