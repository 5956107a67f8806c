"""Each rank splits in its own way, downloads by itself and saves over the others."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, random_split
from torchvision import datasets, transforms


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    data = datasets.CIFAR10("data", download=True, transform=transforms.ToTensor())
    train, valid = random_split(data, [45000, 5000])
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=64, sampler=sampler, num_workers=8)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10)).cuda()
    if os.path.exists("model.pt"):
        net.load_state_dict(torch.load("model.pt"))
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    steps = 10 * (len(train) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.4, total_steps=steps)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        torch.save(net.state_dict(), "model.pt")
        print(epoch, len(valid))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
