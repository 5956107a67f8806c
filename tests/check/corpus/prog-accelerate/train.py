"""Accelerate moves, wraps, shards and gathers."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


def main():
    accelerator = Accelerator(mixed_precision="bf16")
    with accelerator.main_process_first():
        train = datasets.CIFAR10("data", train=True, download=True, transform=transforms.ToTensor())
    test = datasets.CIFAR10("data", train=False, transform=transforms.ToTensor())
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train_loader = DataLoader(train, batch_size=64, shuffle=True, num_workers=4)
    test_loader = DataLoader(test, batch_size=256, num_workers=4)
    model, optimizer, train_loader, test_loader = accelerator.prepare(
        model, optimizer, train_loader, test_loader
    )

    for epoch in range(5):
        model.train()
        for images, labels in train_loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        right = seen = 0
        for images, labels in test_loader:
            with torch.no_grad():
                guesses = model(images).argmax(1)
            guesses, labels = accelerator.gather_for_metrics((guesses, labels))
            right += (guesses == labels).sum().item()
            seen += len(labels)
        accelerator.print(epoch, right / seen)
        accelerator.wait_for_everyone()
        accelerator.save_state(f"state-{epoch}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
