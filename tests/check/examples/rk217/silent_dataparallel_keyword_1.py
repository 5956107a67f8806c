import torch

model = torch.nn.DataParallel(torch.nn.Linear(2, 2), device_ids=[0, 1])
