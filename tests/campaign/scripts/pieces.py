"""What the programs beside this file share: data, generators, and a file that is replaced whole."""

import random
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import TensorDataset


def blobs(samples, seed=1, inputs=6):
    x = torch.randn(samples, inputs, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x[:, 0] * x[:, 1] > x[:, 2]).long())


def rng_state():
    return {"torch": torch.get_rng_state(), "numpy": np.random.get_state(), "python": random.getstate()}


def set_rng_state(state):
    torch.set_rng_state(state["torch"])
    np.random.set_state(state["numpy"])
    random.setstate(state["python"])


def save(state, path):
    torch.save(state, f"{path}.tmp")
    Path(f"{path}.tmp").replace(path)


def load(path):
    return torch.load(path, map_location="cpu", weights_only=False)


@torch.no_grad()
def accuracy(model, loader):
    training = model.training
    model.eval()
    right = [(model(x).argmax(1) == y).float().mean().item() for x, y in loader]
    model.train(training)
    return sum(right) / len(right)
