from torch.nn.parallel import DistributedDataParallel as DDP

def wrap(net):
    return DDP(net, bucket_cap_mb=100)
