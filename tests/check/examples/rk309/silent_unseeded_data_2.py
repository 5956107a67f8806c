import torch
from torch.utils.data import DataLoader, TensorDataset

dataset = TensorDataset(torch.randn(1000, 8))
print(len(DataLoader(dataset, 32)))
