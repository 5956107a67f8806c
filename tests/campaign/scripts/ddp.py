"""DistributedDataParallel with a DistributedSampler; each rank has random numbers of its own."""

import os
import random
from pathlib import Path

import torch
import torch.distributed as dist
from pieces import blobs, load, rng_state, save, set_rng_state
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

EPOCHS = 4
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
if world > 1:
    dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
model = DistributedDataParallel(net) if world > 1 else net
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.8)
dataset = blobs(48)
sampler = DistributedSampler(dataset, world, rank, seed=3)
loader = DataLoader(dataset, batch_size=12 // world, sampler=sampler)
torch.manual_seed(100 + rank)
random.seed(100 + rank)
first = 0

if Path("last.pt").exists():
    checkpoint = load("last.pt")
    net.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    scheduler.load_state_dict(checkpoint["scheduler"])
    first = checkpoint["epochs"]
    set_rng_state(checkpoint["rng"][rank])

for epoch in range(first, EPOCHS):
    sampler.set_epoch(epoch)
    for x, y in loader:
        if random.random() < 0.5:
            x = x.flip(0)
            y = y.flip(0)
        x = x + 0.1 * torch.randn_like(x) * random.random()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    scheduler.step()
    states = [rng_state()] * world
    if world > 1:
        dist.all_gather_object(states, rng_state())
    if rank == 0:
        checkpoint = {
            "epochs": epoch + 1,
            "model": net.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "rng": states,  # in the same file: two files are never of the same moment
        }
        save(checkpoint, "last.pt")
        print(f"epoch {epoch} done, weights {sum(p.abs().sum().item() for p in net.parameters()):.6f}")
    if world > 1:
        dist.barrier()
if world > 1:
    dist.destroy_process_group()
