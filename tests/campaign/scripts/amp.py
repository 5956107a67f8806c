"""Mixed precision with a GradScaler, clipping by the norms so far, and a weight decay that rises."""

import argparse
import statistics
from pathlib import Path

import torch
from pieces import blobs, load, rng_state, save, set_rng_state
from torch import nn
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--dtype", default="float16")
parser.add_argument("--momentum", type=float, default=0.9)
args = parser.parse_args()
dtype = getattr(torch, args.dtype)

torch.manual_seed(0)
train_set = blobs(48)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=args.momentum, weight_decay=1e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=3, enabled=dtype != torch.bfloat16)
epoch, norms = 0, []
if Path("checkpoint.pt").exists():
    ckpt = load("checkpoint.pt")
    model.load_state_dict(ckpt["model"])
    opt.load_state_dict(ckpt["opt"])
    scaler.load_state_dict(ckpt["scaler"])
    epoch = ckpt["epoch"]
    norms = ckpt["norms"]
    set_rng_state(ckpt["rng"])

while epoch < args.epochs:
    order = torch.Generator().manual_seed(epoch)
    for x, y in DataLoader(train_set, batch_size=12, shuffle=True, generator=order):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        limit = statistics.median(norms) if norms else 1.0
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), limit).item())
        scaler.step(opt)
        scaler.update()
    for group in opt.param_groups:
        group["weight_decay"] *= 2
    epoch += 1
    ckpt = {
        "args": args,
        "epoch": epoch,
        "model": model.state_dict(),
        "opt": opt.state_dict(),
        "scaler": scaler.state_dict(),
        "norms": norms,
        "rng": rng_state(),
    }
    save(ckpt, "checkpoint.pt")
    print(f"epoch {epoch}: loss {loss.item():.4f}, scale {scaler.get_scale():.0f}")
