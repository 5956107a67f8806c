import torch

class Trainer:
    def __init__(self, model, data, path):
        self.model, self.data, self.path = model, data, path
        self.epochs_run = 0

    def load(self):
        snapshot = torch.load(self.path, map_location="cpu")
        self.model.load_state_dict(snapshot["MODEL_STATE"])
        self.epochs_run = snapshot["EPOCHS_RUN"]

    def save(self, epoch):
        snapshot = {"MODEL_STATE": self.model.state_dict(), "EPOCHS_RUN": epoch}
        torch.save(snapshot, self.path)

    def run_epoch(self, epoch):
        for x, y in self.data:
            self.model(x).sum().backward()

    def train(self, max_epochs):
        for epoch in range(self.epochs_run, max_epochs):
            self.run_epoch(epoch)
            if epoch % 2 == 0:
                self.save(epoch)

def main():
    trainer = Trainer(None, [], "snapshot.pt")
    trainer.load()
    trainer.train(10)
