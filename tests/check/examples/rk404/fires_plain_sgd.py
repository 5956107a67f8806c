import torch

def main(model, loader, path):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    snapshot = torch.load(path, map_location="cpu")
    model.load_state_dict(snapshot["model"])
    start = snapshot["epoch"]
    for epoch in range(start, 10):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        torch.save({"model": model.state_dict(), "epoch": epoch + 1}, path)

main(torch.nn.Linear(1, 1), [], "snapshot.pt")
