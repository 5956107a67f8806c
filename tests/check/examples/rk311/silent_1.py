import lightning as L
import torchvision
from torch.utils.data import DataLoader

class Data(L.LightningDataModule):
    def setup(self, stage=None):
        self.train = torchvision.datasets.MNIST("data", train=True)
        self.valid = torchvision.datasets.MNIST("data", train=False)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=64, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.valid, batch_size=64)
