import torch

def train(critic, maker, loader):
    opt_c = torch.optim.Adam(critic.parameters())
    opt_m = torch.optim.Adam(maker.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for x, z in loader:
        opt_c.zero_grad()
        (critic(maker(z).detach()) - critic(x)).backward()
        opt_c.step()
        opt_m.zero_grad()
        scaler.scale(-critic(maker(z))).backward()
        scaler.step(opt_m)
        scaler.update()
