from torch.nn.parallel import DistributedDataParallel as DDP

def wrap(net, local_rank):
    return DDP(net, gpus=[local_rank])
