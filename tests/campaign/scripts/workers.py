"""A loader with workers that augment at random, mix-up, and a label smoothing that falls."""

import random
from pathlib import Path

import numpy as np
import torch
from pieces import blobs, load, rng_state, save, set_rng_state
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

EPOCHS = 4


class Augmented(Dataset):
    def __init__(self, dataset):
        self.dataset = dataset
        self.strength = 0.1

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        x, y = self.dataset[index]
        if random.random() < 0.5:
            x = x.flip(0)
        return x + self.strength * torch.randn_like(x), y


def seed_worker(worker):
    np.random.seed(get_worker_info().seed % 2**32)


if __name__ == "__main__":
    torch.manual_seed(0)
    np.random.seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    loader = DataLoader(Augmented(blobs(48)), 12, shuffle=True, num_workers=2, worker_init_fn=seed_worker)
    epoch, smoothing = 0, 0.2
    if Path("last.pt").exists():
        saved = load("last.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        epoch = saved["epoch"]
        smoothing = saved["smoothing"]
        set_rng_state(saved["rng"])

    while epoch < EPOCHS:
        for x, y in loader:
            portion = np.random.beta(0.4, 0.4)
            mixed = portion * x + (1 - portion) * x.flip(0)
            output = model(mixed)
            loss = portion * nn.functional.cross_entropy(output, y, label_smoothing=smoothing)
            loss += (1 - portion) * nn.functional.cross_entropy(output, y.flip(0), label_smoothing=smoothing)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        epoch += 1
        smoothing *= 0.7
        saved = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "epoch": epoch,
            "smoothing": smoothing,
            "rng": rng_state(),
        }
        save(saved, "last.pt")
        print("epoch", epoch, "loss", f"{loss.item():.4f}")
