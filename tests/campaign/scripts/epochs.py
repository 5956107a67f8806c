"""A classifier, one epoch after another: a schedule, the last checkpoint, and the best model."""

from pathlib import Path

import torch
from pieces import accuracy, blobs, load, rng_state, save, set_rng_state
from torch import nn
from torch.utils.data import DataLoader

EPOCHS = 4
torch.manual_seed(0)
train_loader = DataLoader(blobs(48), batch_size=12, shuffle=True)
test_loader = DataLoader(blobs(24, seed=2), batch_size=12)
model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9, weight_decay=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
start_epoch, best, history = 0, 0.0, []

if Path("last.pt").exists():
    checkpoint = load("last.pt")
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    scheduler.load_state_dict(checkpoint["scheduler"])
    start_epoch = checkpoint["epoch"] + 1
    best = checkpoint["best"]
    history = checkpoint["history"]
    set_rng_state(checkpoint["rng"])

for epoch in range(start_epoch, EPOCHS):
    model.train()
    for x, y in train_loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
    score = accuracy(model, test_loader)
    history.append(score)
    if score > best:
        best = score
        save({"epoch": epoch, "model": model.state_dict(), "score": score}, "best.pt")
    checkpoint = {
        "epoch": epoch,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "best": best,
        "history": history,
        "rng": rng_state(),
    }
    save(checkpoint, "last.pt")
    print(f"epoch {epoch}: loss {loss.item():.4f}, accuracy {score:.3f}, best {best:.3f}")
