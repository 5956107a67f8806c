"""A trainer class: rank 0 downloads first, results are broadcast, and the snapshot is complete."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms


class Trainer:
    def __init__(self, path="trainer.pt"):
        self.rank = dist.get_rank()
        self.local_rank = int(os.environ.get("LOCAL_RANK", 0))
        self.path = path
        self.epoch = 0
        self.data = self.load_data()
        self.sampler = DistributedSampler(self.data, seed=5)
        self.loader = DataLoader(self.data, 64, sampler=self.sampler, num_workers=8)
        net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)).cuda()
        self.model = DistributedDataParallel(net, device_ids=[self.local_rank])
        self.optimizer = torch.optim.Adam(self.model.parameters())
        if os.path.exists(path):
            self.load()

    @property
    def is_first(self):
        return self.rank == 0

    def load_data(self):
        if not self.is_first:
            dist.barrier()
        data = datasets.MNIST("data", download=True, transform=transforms.ToTensor())
        if self.is_first:
            dist.barrier()
        return data

    def load(self):
        state = torch.load(self.path, map_location=f"cuda:{self.local_rank}")
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch = state["epoch"]

    def save(self, epoch):
        state = {
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epoch": epoch + 1,
        }
        torch.save(state, self.path + ".new")
        os.rename(self.path + ".new", self.path)

    def run_epoch(self):
        total = torch.zeros(1, device="cuda")
        for images, labels in self.loader:
            loss = torch.nn.functional.cross_entropy(self.model(images.cuda()), labels.cuda())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        dist.reduce(total, dst=0)
        return total.item() / len(self.loader) / dist.get_world_size()

    def train(self, epochs):
        for epoch in range(self.epoch, epochs):
            self.sampler.set_epoch(epoch)
            torch.cuda.synchronize()
            start = time.perf_counter()
            loss = self.run_epoch()
            torch.cuda.synchronize()
            if self.is_first:
                print(epoch, loss, time.perf_counter() - start)
                self.save(epoch)
            stop = [loss < 0.01]
            dist.broadcast_object_list(stop, src=0)
            if stop[0]:
                break


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(1)
    Trainer().train(20)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
