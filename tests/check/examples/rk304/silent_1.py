import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def evaluate(model, test_set, results):
    loader = DataLoader(test_set, batch_size=64, sampler=DistributedSampler(test_set, shuffle=False))
    model.eval()
    with torch.no_grad():
        for x, index in loader:
            results[index] = model(x).argmax(1)
    dist.all_reduce(results, op=dist.ReduceOp.MAX)

dist.init_process_group("gloo")
