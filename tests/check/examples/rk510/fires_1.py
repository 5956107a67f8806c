import torch

def train(model, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda")
    for i, (x, y) in enumerate(loader):
        with torch.autocast("cuda"):
            loss = model(x).sum() / 8
        scaler.scale(loss).backward()
        if (i + 1) % 8 == 0 or i + 1 == len(loader):
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad()
