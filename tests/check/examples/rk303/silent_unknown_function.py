from torch.utils.data import DataLoader
from tools import choose  # which may return None

def load(dataset):
    return DataLoader(dataset, batch_size=8, shuffle=True, sampler=choose(dataset))
