"""Lightning: a module, a loader, and a Trainer with the numbers of devices and nodes.

torchrun --standalone --nproc-per-node 2 examples/frameworks/lightning_trainer.py --devices 2
rankup run --nproc-per-node 2 examples/frameworks/lightning_trainer.py --devices 2
"""

from __future__ import annotations

import argparse
import time

import lightning
import torch
from torch import distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_data(samples: int) -> TensorDataset:
    """Points in 16 dimensions, (samples, 16), labelled by the side of a fixed plane that they are on."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(samples, 16, generator=generator)
    plane = torch.randn(16, generator=generator)
    return TensorDataset(points, (points @ plane > 0).long())


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))

    def training_step(self, batch, index):
        points, labels = batch
        return nn.functional.cross_entropy(self.network(points), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--devices", type=int, default=1, help="per node: as many as there are processes on it"
    )
    parser.add_argument("--num-nodes", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32, help="per process")
    args = parser.parse_args()

    lightning.seed_everything(0)
    trainer = lightning.Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=args.devices,
        num_nodes=args.num_nodes,
        strategy="ddp",
        max_epochs=args.epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Classifier()
    trainer.fit(model, DataLoader(make_data(512), batch_size=args.batch, shuffle=True))

    size = sum(p.detach().double().abs().sum().item() for p in model.parameters())
    print(f"rank {trainer.global_rank} of {trainer.world_size} is done, weights {size:.9f}")
    # gloo's thread may still hold the last tensors; if the interpreter ends now, it can abort or hang (torch 2.13).
    time.sleep(0.5)
    # The Trainer leaves its process group open.
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
