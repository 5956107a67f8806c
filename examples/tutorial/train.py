"""The README's loop with rankup: it runs on any number of processes, and survives a kill."""

import digits
import torch
from torch.nn import functional as F

import rankup

run = rankup.init(snapshots=rankup.Snapshots(every="50 steps"))
model, dataset = digits.network(), digits.load(train=True)
model, opt, data = run.prepare(model, lambda p: torch.optim.Adam(p, lr=1e-3), dataset, global_batch=64)
for epoch in run.epochs(12):
    for x, y in epoch:
        loss = F.cross_entropy(model(x), y)
        run.backward(loss)
        run.step(opt)
        run.meter.add(loss=loss)
    run.print(f"epoch {epoch.index + 1}: loss {run.meter.means()['loss']:.6f}")
run.save_model("model.pt")
