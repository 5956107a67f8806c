import os
import torch
import torch.distributed as dist

def main(model):
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    if local_rank == 0:
        torch.save(model.state_dict(), "model.pt")
