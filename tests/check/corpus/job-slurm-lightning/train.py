"""An autoencoder with Lightning, which finds its ranks by itself."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import MNIST
from torchvision.transforms import ToTensor


class Autoencoder(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU())
        self.decoder = nn.Linear(32, 784)

    def training_step(self, batch, index):
        images, _ = batch
        loss = nn.functional.mse_loss(self.decoder(self.encoder(images)), images.flatten(1))
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    L.seed_everything(1)
    loader = DataLoader(MNIST("data", transform=ToTensor()), batch_size=64, shuffle=True, num_workers=4)
    trainer = L.Trainer(max_epochs=3, accelerator="gpu", devices=4, num_nodes=2, strategy="ddp")
    trainer.fit(Autoencoder(), loader)
