"""A loop as people write it: two schedules, accumulation, mixed precision, clipping, an EMA, a log, evaluations, the
best model, a checkpoint of its own, early stopping."""

import csv

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LinearLR, StepLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
inputs = torch.randn(2_048, 20)
labels = (inputs @ torch.randn(20, 4)).argmax(1)
train, test = TensorDataset(inputs[:1_600], labels[:1_600]), TensorDataset(inputs[1_600:], labels[1_600:])

device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
warmup, decay = LinearLR(opt, 0.1, total_iters=50), StepLR(opt, step_size=5, gamma=0.5)
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95))
log = csv.writer(open("log.csv", "w"))


@torch.no_grad()
def accuracy_of(network):
    right = 0
    for x, y in DataLoader(test, batch_size=256):
        right += (network(x.to(device)).argmax(1) == y.to(device)).sum().item()
    return right / len(test)


best, bad, step = 0.0, 0, 0
for epoch in range(12):
    total = 0.0
    for i, (x, y) in enumerate(DataLoader(train, batch_size=32, shuffle=True, drop_last=True)):
        x, y = x.to(device), y.to(device)
        with torch.autocast(device, torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        (loss / 2).backward()
        total += loss.item() * len(x)
        if i % 2 == 1:  # two batches make a step
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            warmup.step()
            ema.update_parameters(model)
            step += 1
            if step % 100 == 0:
                print(f"step {step}: accuracy of the average {accuracy_of(ema):.3f}")
    decay.step()
    accuracy = accuracy_of(ema)
    log.writerow([epoch, total / len(train), accuracy])
    bad = 0 if accuracy > best else bad + 1
    if accuracy > best:
        best = accuracy
        torch.save(ema.module.state_dict(), "best.pt")
    torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "epoch": epoch}, "checkpoint.pt")
    if bad == 3:
        break
print(f"best accuracy {best:.3f}")
