import os
import torch

if int(os.environ.get("RANK", 0)) == 0:
    torch.set_float32_matmul_precision("high")
