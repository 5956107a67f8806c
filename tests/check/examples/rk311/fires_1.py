import torchvision
from accelerate import Accelerator
from torch.utils.data import DataLoader

def main(model, optimizer):
    accelerator = Accelerator()
    loader = DataLoader(torchvision.datasets.MNIST("data"), batch_size=64)
    for epoch in range(5):
        for x, y in loader:
            accelerator.backward(model(x).sum())
            optimizer.step()
