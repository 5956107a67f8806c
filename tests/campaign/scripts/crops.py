"""A character model trained as nanoGPT trains one: random crops, accumulated gradients, a warm-up, no DataLoader."""

import math
from pathlib import Path

import numpy as np
import torch
from pieces import load, rng_state, save, set_rng_state
from torch import nn

max_iters, warmup_iters, save_interval, accumulation_steps = 16, 6, 4, 2
block_size, batch_size, learning_rate = 8, 4, 0.01
torch.manual_seed(1337)
np.random.seed(1337)
data = torch.randint(16, (400,), generator=torch.Generator().manual_seed(1))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 12)
        self.block = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 16))

    def forward(self, idx, targets):
        logits = self.block(self.embedding(idx))
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def get_batch():
    ix = np.random.randint(len(data) - block_size, size=batch_size)
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
    return x, y


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    return learning_rate * 0.5 * (1 + math.cos(math.pi * (it - warmup_iters) / (max_iters - warmup_iters)))


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.1)
iter_num = 0
if Path("ckpt.pt").exists():
    checkpoint = load("ckpt.pt")
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    iter_num = checkpoint["iter_num"]
    set_rng_state(checkpoint["rng"])

while iter_num < max_iters:
    for param_group in optimizer.param_groups:
        param_group["lr"] = get_lr(iter_num)
    for _ in range(accumulation_steps):
        x, y = get_batch()
        loss = model(x, y) / accumulation_steps
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    iter_num += 1
    if iter_num % save_interval == 0:
        checkpoint = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "iter_num": iter_num,
            "rng": rng_state(),
        }
        save(checkpoint, "ckpt.pt")
        print(f"iter {iter_num}: loss {loss.item() * accumulation_steps:.4f}")
