import torch.distributed as dist
import torch.multiprocessing as mp

def run(rank, size):
    dist.init_process_group("gloo", rank=rank, world_size=size)

if __name__ == "__main__":
    mp.spawn(run, args=(2,), nprocs=2)
