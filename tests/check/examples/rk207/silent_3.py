import torch
import torch.distributed as dist

def timed(run):
    run()

def main():
    dist.init_process_group("nccl")
    x = torch.ones(3)
    if dist.get_rank() == 0:
        timed(print)
    timed(lambda: dist.all_reduce(x))

main()
