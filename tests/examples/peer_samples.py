"""One rank of a pass over 1,437 samples, as the tool's documentation shows it: ``accelerate`` or ``fabric``.

Prints the rank's steps and samples. The batch is the 60 of the script for one process.
"""

from __future__ import annotations

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.arange(1437.0)), batch_size=60, shuffle=True)
if sys.argv[1] == "accelerate":
    from accelerate import Accelerator

    loader = Accelerator(cpu=True).prepare(loader)
else:
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    loader = fabric.setup_dataloaders(loader)
batches = [len(x) for (x,) in loader]
print(f"{len(batches)} steps, {sum(batches)} samples", flush=True)
torch.distributed.destroy_process_group()
