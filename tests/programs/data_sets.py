"""Data of all kinds: samplers, batches by length, workers, dictionaries, streams, two sets at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils.data import Dataset, IterableDataset, StackDataset

import rankup
from programs.program import How, Program, Result, batches, expect, perceptron, points, weights


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.02)


class Rows(Dataset[Any]):
    """A map-style data set of (x, y)."""

    def __init__(self, samples: int = 20) -> None:
        self.x, self.y = points(samples)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[number], self.y[number]


def fit(program: Program, order: Any) -> Result:
    """The plain loop over lists of sample numbers: ``order(epoch)`` gives an epoch's batches."""
    torch.manual_seed(0)
    x, y = points()
    model = perceptron().double()
    opt = adam(model.parameters())
    for epoch in range(program.epochs):
        for i in order(epoch):
            opt.zero_grad()
            F.mse_loss(model(x[i]), y[i]).backward()
            opt.step()
    return weights(model)


def train(program: Program, how: How, dataset: Any, **options: Any) -> Result:
    run = how.init()
    model, opt, data = run.prepare(perceptron(), adam, dataset, **options)
    for x, y in run.steps(data, epochs=program.epochs):
        how.update(run, opt, F.mse_loss(model(x), y))
    return weights(model)


class InOrder(Program):
    """shuffle=False."""

    def plain(self) -> Result:
        return fit(self, lambda epoch: batches(20, self.batch, epoch, shuffle=False))

    def with_rankup(self, how: How) -> Result:
        return train(self, how, Rows(), global_batch=self.batch, shuffle=False)


def stacked(samples: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    """A collate_fn."""
    x, y = zip(*samples, strict=True)
    return torch.stack(x), torch.stack(y)


class Workers(Program):
    """Two loader workers and a collate_fn."""

    def plain(self) -> Result:
        return fit(self, lambda epoch: batches(20, self.batch, epoch))

    def with_rankup(self, how: How) -> Result:
        # As for a script: the ranks of these tests come from a forkserver, and so would each worker, with all imports.
        workers = {"num_workers": 2, "multiprocessing_context": "fork"}
        return train(self, how, Rows(), global_batch=self.batch, collate_fn=stacked, **workers)


class Dictionaries(Rows):
    """As tokenizers give them: nested dictionaries, with things that are not tensors among them."""

    def __getitem__(self, number: int) -> Any:
        return {"inputs": {"x": self.x[number]}, "label": self.y[number], "name": f"sample-{number}"}


class DictBatches(Program):
    """Batches that are nested dictionaries with strings among them."""

    def plain(self) -> Result:
        return fit(self, lambda epoch: batches(20, self.batch, epoch))

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(perceptron(), adam, Dictionaries(), global_batch=self.batch)
        for batch in run.steps(data, epochs=self.epochs):
            assert len(batch["name"]) == len(batch["label"])
            how.update(run, opt, F.mse_loss(model(batch["inputs"]["x"]), batch["label"]))
        return weights(model)


class Graphs(Dataset[Any]):
    """20 small graphs: node features (n, 4), edges (2, m), a target."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x, y = points(60)
        nodes = 2 + number % 4
        edges = torch.tensor([[a, (a + 1) % nodes] for a in range(nodes)]).T
        return x[3 * number : 3 * number + nodes][:nodes], edges, y[number]


def joined(graphs: list[Any]) -> dict[str, torch.Tensor]:
    """Graphs side by side in one: as PyTorch Geometric batches them."""
    nodes, edges, owners, offset = [], [], [], 0
    for number, (x, links, _) in enumerate(graphs):
        nodes.append(x)
        edges.append(links[:, (links < len(x)).all(0)] + offset)
        owners.append(torch.full((len(x),), number))
        offset += len(x)
    targets = torch.stack([target for *_, target in graphs])
    return {"x": torch.cat(nodes), "edges": torch.cat(edges, 1), "owner": torch.cat(owners), "y": targets}


class GraphBatches(Program):
    """Graphs of several sizes, joined to one by a collate_fn; the mean is over graphs."""

    @staticmethod
    def loss(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        x, (source, target) = batch["x"].double(), batch["edges"]
        passed = x.index_add(0, target, x[source])
        pooled = x.new_zeros(len(batch["y"]), 4).index_add(0, batch["owner"], passed)
        return F.mse_loss(model(pooled), batch["y"].double())

    def plain(self) -> Result:
        torch.manual_seed(0)
        graphs = Graphs()
        model = perceptron().double()
        opt = adam(model.parameters())
        for epoch in range(self.epochs):
            for i in batches(20, self.batch, epoch):
                opt.zero_grad()
                self.loss(model, joined([graphs[int(n)] for n in i])).backward()
                opt.step()
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            perceptron(),
            adam,
            Graphs(),
            global_batch=self.batch,
            collate_fn=joined,
        )
        for batch in run.steps(data, epochs=self.epochs):
            how.update(run, opt, self.loss(model, batch))
        return weights(model)


class TwoLoaders(Program):
    """Semi-supervised: zip of two loops over steps is refused; see StackedSets."""

    expected = expect(none="two-loops", ddp="two-loops", fsdp="two-loops", any_world="two-loops")

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, labelled = run.prepare(
            perceptron(), adam, rankup.ResidentData(*points()), global_batch=self.batch
        )
        _, _, unlabelled = run.prepare(perceptron(), None, rankup.ResidentData(points(40)[0]), global_batch=9)
        both = zip(run.steps(labelled, epochs=2), run.steps(unlabelled, epochs=2), strict=False)
        for (x, y), z in both:
            how.update(run, opt, F.mse_loss(model(x), y) + 0.1 * model(z).square().mean())
        return weights(model)


class StackedSets(Program):
    """Semi-supervised: StackDataset gives a labelled and an unlabelled sample at once."""

    @staticmethod
    def loss(model: Any, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(model(x), y) + 0.1 * (model(z) - model(z * 0.9)).square().mean()

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        z = points(40)[0][20:]
        model = perceptron().double()
        opt = adam(model.parameters())
        for epoch in range(self.epochs):
            for i in batches(20, self.batch, epoch):
                opt.zero_grad()
                self.loss(model, x[i], y[i], z[i]).backward()
                opt.step()
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        unlabelled: list[torch.Tensor] = list(points(40)[0][20:])
        pairs: Dataset[Any] = StackDataset(Rows(), unlabelled)  # type: ignore[arg-type]
        model, opt, data = run.prepare(perceptron(), adam, pairs, global_batch=self.batch)
        for (x, y), z in run.steps(data, epochs=self.epochs):
            how.update(run, opt, self.loss(model, x, y, z))
        return weights(model)


class Numbers(IterableDataset[Any]):
    """A stream that is the same each time."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        yield from zip(*points(), strict=True)


class Stream(Program):
    """An IterableDataset: each sample once in each pass (compared by their sum), in no promised order."""

    resumes = False  # a stream has no position to go on from exactly
    expected = expect(any_world="not-any-world")

    def plain(self) -> Result:
        return {"sum": points()[0].sum(0) * self.epochs, "samples": 20 * self.epochs}

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(perceptron(), adam, Numbers(), global_batch=self.batch)
        total, samples = torch.zeros(4, dtype=torch.float64), 0
        for x, y in run.steps(data, epochs=self.epochs):
            how.update(run, opt, F.mse_loss(model(x), y))
            if run.batch.samples:
                total += x.sum(0)
            samples += run.batch.samples
        return {"sum": run.sum(total), "samples": run.sum(samples)}


class Shaken(Rows):
    """Noise from the global generators on each sample."""

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[number] + 0.1 * torch.randn(4, dtype=torch.float64), self.y[number]


class Augmented(Program):
    """A Dataset that augments with torch's global generator."""

    def plain(self) -> Result:
        from rankup.runtime.seed import derive  # random numbers as data, as the order is

        torch.manual_seed(0)
        model = perceptron().double()
        opt = adam(model.parameters())
        rows = Shaken()
        for epoch in range(self.epochs):
            for i in batches(20, self.batch, epoch):
                samples = []
                for number in i.tolist():
                    torch.manual_seed(derive(0, "sample", epoch, number))
                    samples.append(rows[number])
                x, y = stacked(samples)
                opt.zero_grad()
                F.mse_loss(model(x), y).backward()
                opt.step()
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        return train(self, how, Shaken(), global_batch=self.batch)
