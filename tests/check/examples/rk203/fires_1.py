import os
import torch

local_rank = int(os.environ["LOCAL_RANK"])
gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
device = torch.device("cuda", int(gpus[local_rank]))
