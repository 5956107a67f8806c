"""Losses that are not a mean over a rank's samples, and losses over all pairs of a batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import rankup
from programs.program import (
    RAISED,
    How,
    Program,
    Result,
    batches,
    classes,
    expect,
    perceptron,
    points,
    weights,
)


class Classify(Program):
    """A classifier; the loss is the program: ``loss`` in plain torch, ``backward`` on a rank's share."""

    abstract = True
    outputs = 3

    @staticmethod
    def data() -> tuple[torch.Tensor, ...]:
        return classes()

    def loss(self, logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def backward(self, run: rankup.Run, output: torch.Tensor, y: torch.Tensor) -> None:
        run.backward(self.loss(output, y))

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = self.data()
        model = perceptron(4, self.outputs).double()
        opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                opt.zero_grad()
                self.loss(model(x[i]), y[i]).backward()
                opt.step()
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            perceptron(4, self.outputs),
            lambda p: torch.optim.SGD(p, lr=0.2, momentum=0.9),
            rankup.ResidentData(*self.data()),
            global_batch=self.batch,
        )
        for x, y in run.steps(data, epochs=self.epochs):
            self.backward(run, model(x), y)
            run.step(opt)
        return weights(model)


class ClassWeights(Classify):
    """Cross-entropy with class weights: a weighted mean, by count=."""

    importance = torch.tensor([0.2, 1.0, 3.0], dtype=torch.float64)

    def loss(self, logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, y, weight=self.importance)

    def backward(self, run: rankup.Run, output: torch.Tensor, y: torch.Tensor) -> None:
        run.backward(self.loss(output, y), count=self.importance[y].sum())


class IgnoreIndex(Classify):
    """Cross-entropy with ignore_index: the mean over the labels that are there, by count=."""

    @staticmethod
    def data() -> tuple[torch.Tensor, ...]:
        x, y = classes()
        y[::3] = -100
        return x, y

    def loss(self, logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, y)

    def backward(self, run: rankup.Run, output: torch.Tensor, y: torch.Tensor) -> None:
        run.backward(self.loss(output, y), count=(y != -100).sum())


class SumReduction(Classify):
    """reduction="sum" in the loss, and in run.backward."""

    def loss(self, logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 0.1 * F.cross_entropy(logits, y, reduction="sum")

    def backward(self, run: rankup.Run, output: torch.Tensor, y: torch.Tensor) -> None:
        run.backward(self.loss(output, y), reduction="sum")


class LabelSmoothing(Classify):
    """Cross-entropy with label smoothing."""

    def loss(self, logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, y, label_smoothing=0.1)


class Focal(Classify):
    """Focal loss over all samples, normalised by the number of positives on all ranks: run.sum, reduction="sum"."""

    expected = expect(any_world="shard-sum")

    @staticmethod
    def terms(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        wanted = F.one_hot(y, 3).to(logits.dtype)
        entropy = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
        return (entropy * (1 - torch.exp(-entropy)).square()).sum()

    @staticmethod
    def positives(y: torch.Tensor) -> torch.Tensor:
        return (y != 2).sum().clamp(min=1)  # class 2 is the background

    def loss(self, logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.terms(logits, y) / self.positives(y)

    def backward(self, run: rankup.Run, output: torch.Tensor, y: torch.Tensor) -> None:
        own = int((y != 2).sum()) if run.batch.samples else 0  # a dummy batch's are not counted
        run.backward(self.terms(output, y) / max(run.sum(own), 1), reduction="sum")


class Triplet(Classify):
    """Batch-hard triplets within the global batch: run.gather, reduction="global"."""

    expected = expect(any_world="gather-in-parts")

    def loss(self, logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        far = torch.cdist(logits, logits)
        same = y[:, None] == y[None, :]
        hardest = torch.where(same, far, torch.zeros_like(far)).amax(1)
        nearest = torch.where(same, torch.full_like(far, 1e3), far).amin(1)
        return F.softplus(hardest - nearest).mean()

    def backward(self, run: rankup.Run, output: torch.Tensor, y: torch.Tensor) -> None:
        run.backward(self.loss(run.gather(output), run.gather(y)), reduction="global")


def pairs(samples: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    x, _ = points(samples)
    return x, x + 0.1 * points(samples)[0].roll(1, 0)


class SimClr(Program):
    """SimCLR: NT-Xent over both views of the global batch, by run.gather."""

    expected = expect(any_world="gather-in-parts")

    @staticmethod
    def loss(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        z = F.normalize(torch.cat([a, b]), dim=1)
        similar = z @ z.T / 0.5
        similar = similar.masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
        n = len(a)
        return F.cross_entropy(similar, torch.cat([torch.arange(n) + n, torch.arange(n)]))

    def plain(self) -> Result:
        torch.manual_seed(0)
        first, second = pairs()
        model = perceptron(4, 3).double()
        opt = torch.optim.Adam(model.parameters(), lr=0.02)
        for epoch in range(self.epochs):
            for i in batches(len(first), self.batch, epoch):
                opt.zero_grad()
                self.loss(model(first[i]), model(second[i])).backward()
                opt.step()
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            perceptron(4, 3),
            lambda p: torch.optim.Adam(p, lr=0.02),
            rankup.ResidentData(*pairs()),
            global_batch=self.batch,
        )
        for a, b in run.steps(data, epochs=self.epochs):
            run.backward(self.loss(run.gather(model(a)), run.gather(model(b))), reduction="global")
            run.step(opt)
        return weights(model)


class TwoTowers(nn.Module):
    """Two encoders and a learned temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.images, self.texts = perceptron(4, 3), perceptron(4, 3)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return F.normalize(self.images(a), dim=1), F.normalize(self.texts(b), dim=1), self.scale.exp()


class Clip(Program):
    """CLIP: two towers, a learned temperature, contrast over the global batch by run.gather."""

    expected = expect(fsdp=RAISED, any_world="gather-in-parts")  # a scalar parameter cannot be sharded

    @staticmethod
    def loss(a: torch.Tensor, b: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        logits = scale * a @ b.T
        labels = torch.arange(len(a))
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2

    def plain(self) -> Result:
        torch.manual_seed(0)
        first, second = pairs()
        model = TwoTowers().double()
        opt = torch.optim.AdamW(model.parameters(), lr=0.02)
        for epoch in range(self.epochs):
            for i in batches(len(first), self.batch, epoch):
                opt.zero_grad()
                self.loss(*model(first[i], second[i])).backward()
                opt.step()
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            TwoTowers(),
            lambda p: torch.optim.AdamW(p, lr=0.02),
            rankup.ResidentData(*pairs()),
            global_batch=self.batch,
        )
        for first, second in run.steps(data, epochs=self.epochs):
            a, b, scale = model(first, second)
            run.backward(self.loss(run.gather(a), run.gather(b), scale), reduction="global")
            run.step(opt)
        return weights(model)


class Mixup(Program):
    """Mixup in a transform: partner and weight are drawn per sample, keyed on the sample."""

    @staticmethod
    def mix(x: torch.Tensor, y: torch.Tensor, drawn: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        share = (0.7 + 0.3 * drawn[:, :1]).double()
        return x * share + x.flip(1) * (1 - share), y * share.squeeze(1) + 0.5 * (1 - share.squeeze(1))

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        model = perceptron().double()
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        from rankup.runtime.seed import SampleRandom, derive  # random numbers as data, as the order is

        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                drawn = SampleRandom(derive(0, "augment", epoch), i).uniform(1)
                a, b = self.mix(x[i], y[i, 0], drawn)
                opt.zero_grad()
                F.mse_loss(model(a)[:, 0], b).backward()
                opt.step()
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        def transform(columns: Any, random: Any) -> Any:
            return self.mix(columns[0], columns[1][:, 0], random.uniform(1))

        run = how.init()
        model, opt, data = run.prepare(
            perceptron(),
            lambda p: torch.optim.SGD(p, lr=0.1),
            rankup.ResidentData(*points(), transform=transform),
            global_batch=self.batch,
        )
        for x, y in run.steps(data, epochs=self.epochs):
            how.update(run, opt, F.mse_loss(model(x)[:, 0], y))
        return weights(model)
