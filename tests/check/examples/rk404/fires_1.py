import torch

def load(model, optimizer):
    state = torch.load("last.pt", map_location="cpu")
    model.load_state_dict(state["model"])
    return state["epoch"]

def save(model, optimizer, epoch):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
    torch.save(state, "last.pt")

def main(model, loader):
    optimizer = torch.optim.Adam(model.parameters())
    start = load(model, optimizer)
    for epoch in range(start, 10):
        for x, y in loader:
            model(x).sum().backward()
            optimizer.step()
        save(model, optimizer, epoch)

main(None, [])
