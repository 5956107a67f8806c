import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def run(rank, world_size):
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
    model = torch.nn.Linear(2, 2).to(rank)

if __name__ == "__main__":
    mp.spawn(run, args=(torch.cuda.device_count(),), nprocs=torch.cuda.device_count())
