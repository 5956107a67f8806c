import torch

def load(model):
    state = torch.load("last.pt", map_location="cpu")
    model.load_state_dict(state["model"])
    return state["epoch"]

def main(model, loader):
    start = load(model) + 1
    for epoch in range(start, 10):
        for x, y in loader:
            model(x).sum().backward()
        torch.save({"model": model.state_dict(), "epoch": epoch}, "last.pt")

main(None, [])
