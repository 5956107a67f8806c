import torch


class GPT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.e = torch.nn.Embedding(100, 32)
        self.h = torch.nn.Linear(32, 100)

    def forward(self, x):
        return torch.nn.functional.cross_entropy(self.h(self.e(x)).flatten(0, 1), x.flatten())
