import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

class Files(torch.utils.data.Dataset):
    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return 100

    def __getitem__(self, index):
        return torch.load(f"{self.folder}/{index}.pt")

def train(model, loader, optimizer):
    for x, y in loader:
        model(x).sum().backward()
        optimizer.step()

dist.init_process_group("gloo")
files = Files("data")
loader = torch.utils.data.DataLoader(files, 8)
model = DistributedDataParallel(torch.nn.Linear(2, 2))
train(model, loader, torch.optim.SGD(model.parameters(), lr=0.1))
