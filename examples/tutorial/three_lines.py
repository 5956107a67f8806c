"""Page 2: the same script for any number of processes."""

from __future__ import annotations

import digits
import torch
from torch.nn import functional as F

import rankup

run = rankup.init(seed=1, precision="fp64")
train, test = digits.load(train=True), digits.load(train=False)
model, opt, data = run.prepare(
    digits.network(), lambda parameters: torch.optim.SGD(parameters, lr=0.1), train, global_batch=60
)

for epoch in run.epochs(5):
    steps = samples = 0
    for x, y in epoch:
        loss = F.cross_entropy(model(x), y)
        run.backward(loss)
        run.step(opt)
        steps, samples = steps + 1, samples + run.batch.samples
    run.print(f"epoch {epoch.index + 1}: {steps} steps, {run.sum(samples)} samples")

right = seen = 0
for x, y in run.batches(test):
    right += (model(x).argmax(1) == y).sum().item()
    seen += len(y)
right, seen = run.sum(right), run.sum(seen)
run.print(f"{right / seen:.1%} of {seen} are right")

weights = sum(p.detach().abs().sum().item() for p in model.parameters())
run.print(f"weights {weights:.6f}")
