import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(100):
    optimizer.zero_grad()
    other(torch.randn(8, 4)).backward()
    if i % 5 == 0:
        model(torch.randn(8, 4)).sum().backward()
        optimizer.step()
