"""Page 1: a typical plain PyTorch script."""

from __future__ import annotations

import digits
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

torch.manual_seed(1)
train, test = digits.load(train=True), digits.load(train=False)
model = digits.network()
opt = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(5):
    steps = samples = 0
    for x, y in DataLoader(train, batch_size=60, shuffle=True):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        steps, samples = steps + 1, samples + len(y)
    print(f"epoch {epoch + 1}: {steps} steps, {samples} samples")

with torch.no_grad():
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in DataLoader(test, batch_size=360))
print(f"{right / len(test):.1%} of {len(test)} are right")
