import os
import torch


def save(state, path):
    torch.save(state, path + ".part")
    os.replace(path + ".part", path)


def main(model, loader, evaluate):
    optimizer = torch.optim.Adam(model.parameters())
    start, best = 0, 0.0
    if os.path.exists("last.pt"):
        checkpoint = torch.load("last.pt")
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        start = checkpoint["epoch"] + 1
        best = checkpoint["best"]
    for epoch in range(start, 10):
        for x in loader:
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        if evaluate(model) > best:
            best = evaluate(model)
            save({"model": model.state_dict(), "epoch": epoch}, "best.pt")
        save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch, "best": best},
            "last.pt",
        )


main(None, [], None)
