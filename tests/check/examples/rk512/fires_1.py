import torch
from torch.cuda.amp import GradScaler

def train(model, optimizer, scheduler, loader, amp):
    scaler = GradScaler(enabled=amp)
    for i, (x, y) in enumerate(loader):
        with torch.autocast("cuda", enabled=amp):
            loss = model(x).sum()
        scaled = scaler.scale(loss)
        scaled.backward()
        if (i + 1) % 4 == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
