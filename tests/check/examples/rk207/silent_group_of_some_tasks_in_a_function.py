import os, torch, torch.distributed as dist
def main(rank):
    dist.init_process_group('nccl', rank=rank, world_size=2)
    dist.barrier()
    dist.destroy_process_group()
local_rank = int(os.environ['LOCAL_RANK'])
if local_rank == 0:       # one process per node trains; the others serve data
    main(int(os.environ['GROUP_RANK']))
