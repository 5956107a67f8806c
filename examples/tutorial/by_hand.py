"""Page 3: the same training by hand, with DistributedDataParallel and a DistributedSampler."""

from __future__ import annotations

import os

import digits
import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

cuda = torch.cuda.is_available()
dist.init_process_group("nccl" if cuda else "gloo")  # reads RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")

torch.manual_seed(1)  # the same on every rank; DDP also copies rank 0's weights to the others
train = digits.load(train=True)
sampler = DistributedSampler(train)
model = DistributedDataParallel(digits.network().to(device))
opt = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(5):
    sampler.set_epoch(epoch)  # without it every epoch has the same order
    steps = samples = 0
    for x, y in DataLoader(train, batch_size=60, sampler=sampler):  # 60 on EACH process
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        opt.step()
        opt.zero_grad()
        steps, samples = steps + 1, samples + len(y)
    total = torch.tensor(samples, device=device)
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"epoch {epoch + 1}: {steps} steps, {total.item()} samples of {len(train)}")
dist.destroy_process_group()
