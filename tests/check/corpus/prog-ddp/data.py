"""Training data in shuffled shards; validation data in shards without padding."""

import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, Subset
from torchvision import datasets, transforms


def loaders(batch_size):
    transform = transforms.Compose([transforms.Resize((224, 224)), transforms.ToTensor()])
    train = datasets.ImageFolder("data/train", transform)
    valid = datasets.ImageFolder("data/valid", transform)
    part = Subset(valid, range(dist.get_rank(), len(valid), dist.get_world_size()))
    return (
        DataLoader(train, batch_size, sampler=DistributedSampler(train), num_workers=7, drop_last=True),
        DataLoader(part, batch_size, num_workers=7),
    )
