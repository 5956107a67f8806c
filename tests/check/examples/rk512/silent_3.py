import torch

def train(model, optimizer, loader, amp):
    scaler = torch.amp.GradScaler("cuda") if amp else None
    for x, y in loader:
        loss = model(x).sum()
        if amp:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if amp:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
