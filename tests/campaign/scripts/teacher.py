"""A mean teacher: the student must agree with an average of its own weights. Another average is what is evaluated."""

import copy
from pathlib import Path

import torch
from pieces import accuracy, blobs, load, rng_state, save, set_rng_state
from torch import nn
from torch.utils.data import DataLoader

EPOCHS = 4


class ModelEMA:
    """As many detectors have it: the decay rises with the number of updates."""

    def __init__(self, model):
        self.module = copy.deepcopy(model).eval()
        self.updates = 0

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        decay = min(0.95, (1 + self.updates) / (4 + self.updates))
        for mine, theirs in zip(self.module.state_dict().values(), model.state_dict().values(), strict=True):
            if mine.is_floating_point():
                mine.mul_(decay).add_(theirs, alpha=1 - decay)


torch.manual_seed(0)
student = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 2))
teacher = copy.deepcopy(student).requires_grad_(False)
ema = ModelEMA(student)
optimizer = torch.optim.Adam(student.parameters(), lr=0.01)
loader = DataLoader(blobs(48), batch_size=12, shuffle=True)
test_loader = DataLoader(blobs(24, seed=2), batch_size=24)
first, updates = 0, 0
if Path("last.pt").exists():
    state = load("last.pt")
    student.load_state_dict(state["student"])
    teacher.load_state_dict(state["teacher"])
    ema.module.load_state_dict(state["ema"])
    ema.updates = state["ema_updates"]
    optimizer.load_state_dict(state["optimizer"])
    updates = state["updates"]
    first = state["epoch"]
    set_rng_state(state["rng"])

for epoch in range(first, EPOCHS):
    for x, y in loader:
        rampup = min(1.0, updates / 12)
        logits = student(x)
        with torch.no_grad():
            target = teacher(x + 0.1 * torch.randn_like(x)).softmax(1)
        consistency = (logits.softmax(1) - target).square().mean()
        loss = nn.functional.cross_entropy(logits, y) + rampup * consistency
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        updates += 1
        with torch.no_grad():
            for mine, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
                mine.lerp_(theirs, 0.1)
        ema.update(student)
    score = accuracy(ema.module, test_loader)
    state = {
        "student": student.state_dict(),
        "teacher": teacher.state_dict(),
        "ema": ema.module.state_dict(),
        "ema_updates": ema.updates,
        "optimizer": optimizer.state_dict(),
        "updates": updates,
        "epoch": epoch + 1,
        "rng": rng_state(),
    }
    save(state, "last.pt")
    print(f"epoch {epoch}: accuracy of the average {score:.4f}")
save(ema.module.state_dict(), "average.pt")
