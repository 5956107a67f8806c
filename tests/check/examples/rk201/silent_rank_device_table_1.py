import os
import torch

names = ["train", "valid"]
rank = int(os.environ["RANK"])
print(names[rank])
