--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4 --ntasks-per-gpu=1 --cpus-per-task=8
python train.py
--- train.py
from multiprocessing import Process

import torch.distributed as dist


def work(rank):
    dist.init_process_group("nccl", rank=rank, world_size=4, init_method="tcp://127.0.0.1:29500")


ranks = [Process(target=work, args=(rank,)) for rank in range(4)]
for one in ranks:
    one.start()
