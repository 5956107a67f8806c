import os

import torch
import torch.distributed as dist
from data import TextData, collate
from model import GPT
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.data import DataLoader, DistributedSampler

local_rank = int(os.environ["LOCAL_RANK"])
rank = int(os.environ["RANK"])
world_size = int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl", rank=rank, world_size=world_size, device_id=torch.device("cuda", local_rank))

torch.manual_seed(0)
ds = TextData(split="train")
sampler = DistributedSampler(ds, num_replicas=world_size, rank=rank, seed=0)
dl = DataLoader(ds, batch_size=4, sampler=sampler, num_workers=6, collate_fn=collate)
model = FSDP(GPT(), device_id=local_rank)
opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
for ep in range(3):
    sampler.set_epoch(ep)
    for i, batch in enumerate(dl):
        loss = model(batch.cuda())
        loss.backward()
        model.clip_grad_norm_(1.0)
        opt.step()
        opt.zero_grad()
        if i % 100 == 0 and rank == 0:
            print(ep, i, loss.item())
    with FSDP.state_dict_type(
        model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    ):
        sd = model.state_dict()
    if rank == 0:
        torch.save(sd, f"gpt-{ep}.pt")
dist.barrier()
dist.destroy_process_group()
