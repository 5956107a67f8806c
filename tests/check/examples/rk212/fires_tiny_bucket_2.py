import torch

BUCKET = 4

def wrap(net):
    return torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=BUCKET)
