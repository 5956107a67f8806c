"""Lightning starts the group, wraps the model and replaces the sampler."""

import lightning as L
import torch
from torch.utils.data import DataLoader, random_split
from torchvision import datasets, transforms


class Digits(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))

    def training_step(self, batch, index):
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(self.layers(images), labels)
        self.log("loss", loss, sync_dist=True)
        return loss

    def validation_step(self, batch, index):
        images, labels = batch
        accuracy = (self.layers(images).argmax(1) == labels).float().mean()
        self.log("accuracy", accuracy, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


def main():
    L.seed_everything(1)
    data = datasets.MNIST("data", transform=transforms.ToTensor())
    train, valid = random_split(data, [55000, 5000])
    trainer = L.Trainer(accelerator="gpu", devices=4, num_nodes=2, strategy="ddp", max_epochs=5)
    trainer.fit(
        Digits(), DataLoader(train, 64, shuffle=True, num_workers=7), DataLoader(valid, 256, num_workers=7)
    )
    trainer.save_checkpoint("digits.ckpt")


if __name__ == "__main__":
    main()
