import torch

if torch.cuda.is_available():
    torch.set_float32_matmul_precision("high")
