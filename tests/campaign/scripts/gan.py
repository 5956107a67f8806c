"""A GAN: two networks, two optimizers, two schedules."""

from pathlib import Path

import torch
from pieces import blobs, load, rng_state, save, set_rng_state
from torch import nn
from torch.utils.data import DataLoader

EPOCHS, NOISE = 4, 4
torch.manual_seed(0)
netG = nn.Sequential(nn.Linear(NOISE, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 6))
netD = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(16, 1))
optG = torch.optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
optD = torch.optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
schedG = torch.optim.lr_scheduler.LambdaLR(optG, lambda epoch: 0.9**epoch)
schedD = torch.optim.lr_scheduler.LambdaLR(optD, lambda epoch: 0.8**epoch)
bce = nn.BCEWithLogitsLoss()
fixed_noise = torch.randn(8, NOISE)
dataset = blobs(36)
start = 0
if Path("gan.pt").exists():
    state = load("gan.pt")
    netG.load_state_dict(state["netG"])
    netD.load_state_dict(state["netD"])
    optG.load_state_dict(state["optG"])
    optD.load_state_dict(state["optD"])
    schedG.load_state_dict(state["schedG"])
    schedD.load_state_dict(state["schedD"])
    start = state["epoch"] + 1
    set_rng_state(state["rng"])

for epoch in range(start, EPOCHS):
    order = torch.Generator().manual_seed(1000 + epoch)
    for real, _ in DataLoader(dataset, batch_size=12, shuffle=True, generator=order):
        fake = netG(torch.randn(len(real), NOISE))
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        optD.zero_grad()
        lossD = bce(netD(real), ones) + bce(netD(fake.detach()), zeros)
        lossD.backward()
        optD.step()
        optG.zero_grad()
        lossG = bce(netD(fake), ones)
        lossG.backward()
        optG.step()
    schedG.step()
    schedD.step()
    with torch.no_grad():
        save(netG.eval()(fixed_noise), "samples.pt")
    netG.train()
    state = {
        "epoch": epoch,
        "netG": netG.state_dict(),
        "netD": netD.state_dict(),
        "optG": optG.state_dict(),
        "optD": optD.state_dict(),
        "schedG": schedG.state_dict(),
        "schedD": schedD.state_dict(),
        "rng": rng_state(),
    }
    save(state, "gan.pt")
    print(f"epoch {epoch}: D {lossD.item():.4f}, G {lossG.item():.4f}")
