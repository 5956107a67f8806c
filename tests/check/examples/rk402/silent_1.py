import torch
import torch.distributed as dist

def resume(model, path):
    dist.init_process_group("nccl")
    checkpoint = torch.load(path, map_location="cpu")
    model.load_state_dict(checkpoint["model"])
