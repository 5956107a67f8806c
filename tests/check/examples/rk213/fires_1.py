import os
import torch

local_rank = os.environ["LOCAL_RANK"]
os.environ["CUDA_VISIBLE_DEVICES"] = local_rank
torch.cuda.set_device(int(local_rank))
