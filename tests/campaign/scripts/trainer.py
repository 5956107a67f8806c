"""A Trainer of the user's own: its state in one object, the files best.pt and last.pt, an early stop, and a backbone
that is frozen at first."""

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from pieces import blobs, load, rng_state, save, set_rng_state
from torch import nn
from torch.utils.data import DataLoader


@dataclass
class TrainState:
    epoch: int = 0
    best: float = float("inf")
    bad_epochs: int = 0
    temperature: float = 2.0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.backbone(x))


class Trainer:
    def __init__(self, epochs=6, patience=2):
        self.epochs, self.patience = epochs, patience
        self.model = Net()
        self.model.backbone.requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.loader = DataLoader(blobs(36), batch_size=12, shuffle=True)
        self.x, self.y = blobs(24, seed=2).tensors
        self.state = TrainState()

    def load(self, path):
        saved = load(path)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.state = TrainState(**saved["state"])
        self.unfreeze()
        set_rng_state(saved["rng"])

    def save(self, path):
        saved = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "state": asdict(self.state),
            "rng": rng_state(),
        }
        save(saved, path)

    def unfreeze(self):
        if self.state.epoch >= 2:
            self.model.backbone.requires_grad_(True)

    def train_epoch(self):
        self.model.train()
        for x, y in self.loader:
            loss = nn.functional.cross_entropy(self.model(x) / self.state.temperature, y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.state.temperature = max(0.5, self.state.temperature * 0.95)

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        return nn.functional.cross_entropy(self.model(self.x), self.y).item()

    def fit(self):
        while self.state.epoch < self.epochs and self.state.bad_epochs < self.patience:
            self.train_epoch()
            self.state.epoch += 1
            self.unfreeze()
            score = self.evaluate()
            self.state.bad_epochs = 0 if score < self.state.best else self.state.bad_epochs + 1
            if score < self.state.best:
                self.state.best = score
                self.save("best.pt")
            self.save("last.pt")
            print(f"epoch {self.state.epoch}: score {score:.5f}, bad {self.state.bad_epochs}")


if __name__ == "__main__":
    torch.manual_seed(0)
    trainer = Trainer()
    if Path("last.pt").exists():
        trainer.load("last.pt")
    trainer.fit()
