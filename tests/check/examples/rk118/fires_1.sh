--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4 --gpus-per-task=1
srun python train.py
--- train.py
import torch
import torch.distributed as dist

def main():
    dist.init_process_group("nccl")
    local_rank = dist.get_rank() % torch.cuda.device_count()
    torch.cuda.set_device(local_rank)
    model = torch.nn.Linear(2, 2).cuda()
    if local_rank == 0:
        torch.save(model.state_dict(), "model.pt")

main()
