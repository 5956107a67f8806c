"""A bracket that is closed after the next statements."""

import torch
from torch.utils.data import DataLoader

loader = DataLoader(
    list(range(100)),
    batch_size=8,
    num_workers=4

for batch in loader:
    print(torch.tensor(batch).sum())
)
