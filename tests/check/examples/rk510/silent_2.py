import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(100):
    if i % 4 == 0:
        optimizer.zero_grad()
    (model(torch.randn(8, 4)).sum() / 4).backward()
    if i % 4 == 3:
        optimizer.step()
