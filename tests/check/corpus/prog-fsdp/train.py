"""A transformer sharded by FSDP; its whole state is gathered on all ranks and written by one."""

import functools
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Tokens(Dataset):
    def __init__(self, path, length):
        self.tokens = torch.load(path)
        self.length = length

    def __len__(self):
        return len(self.tokens) // self.length - 1

    def __getitem__(self, index):
        start = index * self.length
        return self.tokens[start : start + self.length], self.tokens[start + 1 : start + self.length + 1]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32000, 512)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(512, 8, batch_first=True) for _ in range(12))
        self.head = nn.Linear(512, 32000)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def is_main():
    return dist.get_rank() == 0


def save(model, path):
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        state = model.state_dict()
    if is_main():
        torch.save(state, path)


def main():
    dist.init_process_group("nccl")
    device = dist.get_rank() % torch.cuda.device_count()
    torch.cuda.set_device(device)
    torch.manual_seed(0)

    data = Tokens("tokens.pt", 1024)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=2)
    policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={nn.TransformerEncoderLayer}
    )
    model = FSDP(Model(), auto_wrap_policy=policy, device_id=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2 * len(loader))
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            scores = model(x.cuda())
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), y.cuda().flatten())
            loss.backward()
            model.clip_grad_norm_(1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        save(model, f"model-{epoch}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
