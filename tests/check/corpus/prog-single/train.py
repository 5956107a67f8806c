"""One process on one GPU, with resume."""

import os
import time

import torch
from torch.utils.data import DataLoader, random_split
from torchvision import datasets, transforms


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = datasets.CIFAR10("data", download=True, transform=transforms.ToTensor())
    train, valid = random_split(data, [45000, 5000])
    train_loader = DataLoader(train, batch_size=128, shuffle=True, num_workers=8)
    valid_loader = DataLoader(valid, batch_size=256, num_workers=8)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    start = 0
    if os.path.exists("last.pt"):
        state = torch.load("last.pt")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["epoch"]

    for epoch in range(start, 10):
        began = time.time()
        model.train()
        for images, labels in train_loader:
            loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        right = 0
        with torch.no_grad():
            for images, labels in valid_loader:
                right += (model(images.to(device)).argmax(1) == labels.to(device)).sum().item()
        print(epoch, right / len(valid), f"{time.time() - began:.1f} s")
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}, "new.pt"
        )
        os.replace("new.pt", "last.pt")


if __name__ == "__main__":
    main()
