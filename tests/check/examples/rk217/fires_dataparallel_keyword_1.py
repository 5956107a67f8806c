import torch

model = torch.nn.DataParallel(torch.nn.Linear(2, 2), gpu_ids=[0, 1])
