import torch

def train(model, optimizer, scheduler, loader, scaler=None):
    for x, y in loader:
        loss = model(x).sum()
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        scheduler.step()
