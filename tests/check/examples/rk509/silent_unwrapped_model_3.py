import torch
import torch.distributed as dist

def main(loader):
    dist.init_process_group("gloo")
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        model(x).sum().backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()

main([])
