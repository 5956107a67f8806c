"""A linear model with Accelerate."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    accelerator = Accelerator()
    torch.manual_seed(0)
    points = torch.randn(8192, 8)
    loader = DataLoader(TensorDataset(points, points.sum(1, keepdim=True)), batch_size=64, shuffle=True)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(4):
        for inputs, targets in loader:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.mse_loss(model(inputs), targets))
            optimizer.step()
    accelerator.wait_for_everyone()
    accelerator.save_model(model, "linear")


if __name__ == "__main__":
    main()
