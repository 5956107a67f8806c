import os, torch, torch.distributed as dist
sub = int(os.environ['SLURM_LOCALID']) % 3
if sub == 0:                       # only every third task trains; the others load data
    rank = int(os.environ['SLURM_PROCID']) // 3
    dist.init_process_group('nccl', rank=rank, world_size=int(os.environ['SLURM_NTASKS']) // 3)
    t = torch.ones(1, device='cuda')
    dist.all_reduce(t)
    dist.barrier()
    dist.destroy_process_group()
