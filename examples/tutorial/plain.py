"""The README's loop without rankup."""

import digits
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

model, dataset = digits.network(), digits.load(train=True)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
data = DataLoader(dataset, batch_size=64, shuffle=True)
for epoch in range(12):
    for x, y in data:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
    print(f"epoch {epoch + 1}: loss {loss.item():.6f}")
torch.save(model.state_dict(), "model.pt")
