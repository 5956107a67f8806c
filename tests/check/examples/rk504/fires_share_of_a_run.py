import rankup
import torch

run = rankup.init()
dataset = torch.utils.data.TensorDataset(torch.ones(100, 4), torch.ones(100, 1))
model, opt, data = run.prepare(
    torch.nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=0.1), dataset, global_batch=10
)
for epoch in run.epochs(2):
    total = 0.0
    for x, y in epoch:
        loss = ((model(x) - y) ** 2).mean()
        run.backward(loss)
        run.step(opt)
        total += loss.item() * len(x)
    run.print(total / len(dataset))
