"""A resumed run makes an epoch again, with an optimizer that has forgotten everything."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Pairs(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(2048, 20, generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.x[index].sum(0, keepdim=True)


class Trainer:
    def __init__(self, model, loader, optimizer, path):
        self.gpu = int(os.environ["LOCAL_RANK"])
        self.rank = int(os.environ["RANK"])
        self.loader, self.optimizer, self.path = loader, optimizer, path
        self.first_epoch = 0
        if os.path.exists(path):
            state = torch.load(path, map_location="cpu")
            model.load_state_dict(state["MODEL"])
            self.first_epoch = state["EPOCH"]
        self.model = DDP(model.to(self.gpu), device_ids=[self.gpu])

    def _save(self, epoch):
        state = {"MODEL": self.model.module.state_dict(), "EPOCH": epoch}
        torch.save(state, self.path)

    def _run_epoch(self, epoch):
        size = len(next(iter(self.loader))[0])
        print(f"rank {self.rank}, epoch {epoch}, batch {size}")
        self.loader.sampler.set_epoch(epoch)
        for x, y in self.loader:
            self.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.model(x.to(self.gpu)), y.to(self.gpu))
            loss.backward()
            self.optimizer.step()

    def train(self, epochs):
        for epoch in range(self.first_epoch, epochs):
            self._run_epoch(epoch)
            if self.rank == 0 and epoch % 5 == 0:
                self._save(epoch)


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    data = Pairs()
    loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data))
    model = torch.nn.Linear(20, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    Trainer(model, loader, optimizer, "snapshot.pt").train(50)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
