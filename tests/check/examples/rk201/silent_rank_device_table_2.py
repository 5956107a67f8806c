import torch
import torch.distributed as dist

devices = list(range(torch.cuda.device_count()))
torch.cuda.set_device(devices[dist.get_rank() % len(devices)])
