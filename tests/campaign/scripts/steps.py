"""A stream of samples, a loop over steps, a warm-up from a rate of zero, and clipping."""

from pathlib import Path

import torch
from pieces import load, rng_state, save, set_rng_state
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

TOTAL_STEPS, SAVE_EVERY, WARMUP = 16, 3, 6


class Stream(IterableDataset):
    """Sample after sample from ``start`` on."""

    def __init__(self, start=0):
        self.start = start

    def __iter__(self):
        for index in range(self.start, 10_000):
            x = torch.randn(6, generator=torch.Generator().manual_seed(index))
            yield x, x.sum().sin()


def train():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, max(0, n - 4) / WARMUP))
    step = 0
    if Path("last.pt").exists():
        state = load("last.pt")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        step = state["step"]
        set_rng_state(state["rng"])
    # With a generator of its own, a loader draws nothing from the global one.
    batches = iter(DataLoader(Stream(start=step * 8), batch_size=8, generator=torch.Generator()))
    while step < TOTAL_STEPS:
        x, y = next(batches)
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        step += 1
        if step % SAVE_EVERY == 0:
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
                "step": step,
                "rng": rng_state(),
            }
            save(state, "last.pt")
            print(f"step {step}: loss {loss.item():.5f}")


train()
