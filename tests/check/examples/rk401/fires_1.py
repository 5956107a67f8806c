import argparse
import os
import torch
import torch.distributed as dist

def save(model, args, epoch):
    path = os.path.join(args.out, f"epoch_{epoch}.pt")
    torch.save(
        {"model": model.state_dict(), "epoch": epoch},
        path,
    )

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="runs")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    for epoch in range(3):
        save(torch.nn.Linear(2, 2), args, epoch)

if __name__ == "__main__":
    main()
