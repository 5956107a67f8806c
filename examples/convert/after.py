"""The loop of before.py with rankup: on any number of processes, and resumed exactly."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LinearLR, StepLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import TensorDataset

import rankup

run = rankup.init(precision="bf16", log="csv", snapshots=rankup.Snapshots(every="1 epochs"))
torch.manual_seed(0)
inputs = torch.randn(2_048, 20)
labels = (inputs @ torch.randn(20, 4)).argmax(1)
train, test = TensorDataset(inputs[:1_600], labels[:1_600]), TensorDataset(inputs[1_600:], labels[1_600:])

model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4))
model, opt, data = run.prepare(
    model, lambda p: torch.optim.AdamW(p, lr=1e-2), train, global_batch=64, accumulate=2, clip=1.0
)
warmup, decay = LinearLR(opt, 0.1, total_iters=50), StepLR(opt, step_size=5, gamma=0.5)
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95))
values = run.register(warmup=warmup, decay=decay, ema=ema, best=0.0, bad=0)


def accuracy_of(network):
    meter = rankup.Meter(run)
    for x, y in run.batches(test, global_batch=256):
        meter.add(accuracy=network(x).argmax(1) == y)
    return meter.means()["accuracy"]


for epoch in run.epochs(12, data):
    if values.bad == 3:
        break
    for x, y in epoch:
        loss = F.cross_entropy(model(x), y)
        run.backward(loss)
        run.meter.add(loss=loss)
        if run.step(opt):
            warmup.step()
            ema.update_parameters(model)
            if (run.global_step + 1) % 100 == 0:
                run.print(f"step {run.global_step + 1}: accuracy of the average {accuracy_of(ema):.3f}")
    decay.step()
    accuracy = accuracy_of(ema)
    run.log(loss=run.meter.means()["loss"], accuracy=accuracy)
    values.bad = 0 if accuracy > values.best else values.bad + 1
    if accuracy > values.best:
        values.best = accuracy
        if run.world.is_main:
            torch.save(ema.module.state_dict(), "best.pt")
run.print(f"best accuracy {values.best:.3f}")
