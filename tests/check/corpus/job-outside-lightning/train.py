import os

import pytorch_lightning as pl
import torch
import torchvision
from torch.utils.data import DataLoader


class DM(pl.LightningDataModule):
    def prepare_data(self):
        torchvision.datasets.CIFAR10("data", download=True)

    def setup(self, stage=None):
        self.tr = torchvision.datasets.CIFAR10(
            "data", train=True, transform=torchvision.transforms.ToTensor()
        )
        self.va = torchvision.datasets.CIFAR10(
            "data", train=False, transform=torchvision.transforms.ToTensor()
        )

    def train_dataloader(self):
        return DataLoader(self.tr, 128, shuffle=True, num_workers=4)

    def val_dataloader(self):
        return DataLoader(self.va, 128, num_workers=4)


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.m = torchvision.models.resnet18(num_classes=10)
        self.save_hyperparameters()

    def forward(self, x):
        return self.m(x)

    def training_step(self, b, _):
        x, y = b
        loss = torch.nn.functional.cross_entropy(self(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, b, _):
        x, y = b
        self.log("val_acc", (self(x).argmax(1) == y).float().mean(), on_epoch=True, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


if __name__ == "__main__":
    pl.seed_everything(1)
    cb = pl.callbacks.ModelCheckpoint(monitor="val_acc", mode="max", save_last=True)
    tr = pl.Trainer(
        devices=8,
        num_nodes=int(os.environ["SLURM_NNODES"]),
        accelerator="gpu",
        strategy="ddp",
        max_epochs=10,
        callbacks=[cb],
    )
    tr.fit(Net(), datamodule=DM())
    if tr.is_global_zero:
        print(cb.best_model_path)
