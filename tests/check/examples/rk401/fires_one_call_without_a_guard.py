import os

import torch
import torch.distributed as dist


def save_checkpoint(state, filename="checkpoint.pth.tar"):
    torch.save(state, filename)


def main(model, wanted):
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    for epoch in range(3):
        accuracy = model(torch.zeros(2, 3)).mean()
        if rank == 0:
            save_checkpoint(model.state_dict())
        if accuracy >= wanted:
            save_checkpoint(model.state_dict())
            break
    dist.destroy_process_group()


main(torch.nn.Linear(3, 1), 0.9)
