"""Names that torch does not have."""

import torch
from torch.utils.data import Dataloader

URL = "http://yann.lecun.com/exdb/mnist/train-images-idx3-ubyte.gz"

model = torch.nn.DataParallel(torch.nn.Linear(784, 10), gpu_ids=[0, 1])
print(model, Dataloader, URL)
