import torch


class TextData(torch.utils.data.Dataset):
    def __init__(self, split):
        self.x = torch.load(f"{split}.pt", map_location="cpu")

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i]


def collate(b):
    return torch.stack(b)
