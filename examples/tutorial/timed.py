"""For a table of speed-ups: the same training on any number of processes, and the time that it took."""

import time

import digits
import torch
from torch.nn import functional as F

import rankup

run = rankup.init()
data = digits.load(train=True)
model, opt, data = run.prepare(digits.network(), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=60)
began = time.perf_counter()
for x, y in run.steps(data, epochs=2):
    run.backward(F.cross_entropy(model(x), y))
    run.step(opt)
run.print(f"trained in {time.perf_counter() - began:.3f} s")
