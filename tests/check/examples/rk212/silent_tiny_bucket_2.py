from torch.nn.parallel import DistributedDataParallel as DDP

def wrap(net, args):
    return DDP(net, bucket_cap_mb=args.bucket)
