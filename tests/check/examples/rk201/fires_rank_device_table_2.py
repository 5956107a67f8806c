import os
import torch

devices = ["cuda:0", "cuda:1"]
rank = int(os.environ["RANK"])
device = devices[rank]
