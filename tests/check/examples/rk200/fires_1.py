import torch

loader = torch.utils.data.DataLoader(
    dataset,
    batch_size=8,

for x in loader:
    print(x)
)
