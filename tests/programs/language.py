"""Language models: truncated backpropagation, random windows, padding, tied embeddings, a stream of text."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import rankup
from programs.program import How, Program, Result, batches, expect, weights

WORDS, PAD = 11, 0


def text(length: int = 120) -> torch.Tensor:
    """int64 (length,), 1 to WORDS - 1: something that can be learned."""
    noise = torch.randint(0, 3, (length,), generator=torch.Generator().manual_seed(5))
    return (torch.arange(length) * 3 + noise) % (WORDS - 1) + 1


class Attention(nn.Module):
    """One causal block with tied embeddings: (n, t) → (n, t, WORDS)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(WORDS, 8), nn.Embedding(12, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(8, WORDS, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        t = words.shape[1]
        ahead = torch.ones(t, t, dtype=torch.bool).triu(1)
        hidden = self.block(self.embed(words) + self.place(torch.arange(t)), src_mask=ahead)
        found: torch.Tensor = self.head(hidden)
        return found


class Windows(Dataset[Any]):
    """Every window of 8 tokens and the next one of each."""

    def __init__(self) -> None:
        self.text = text(60)

    def __len__(self) -> int:
        return len(self.text) - 8

    def __getitem__(self, start: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.text[start : start + 8], self.text[start + 1 : start + 9]


class TransformerSteps(Program):
    """A transformer with tied embeddings on random windows: run.steps(data, steps=N), AdamW, clip=, warm-up."""

    steps = 13  # 52 windows in batches of 6: an epoch has 9

    @staticmethod
    def schedule(opt: Any) -> Any:
        return torch.optim.lr_scheduler.LambdaLR(opt, lambda step: min(1.0, (step + 1) / 5))

    def plain(self) -> Result:
        torch.manual_seed(0)
        data = Windows()
        model = Attention().double()
        opt = torch.optim.AdamW(model.parameters(), lr=0.02)
        schedule = self.schedule(opt)
        numbers = [i for epoch in range(2) for i in batches(len(data), self.batch, epoch)]
        for i in numbers[: self.steps]:
            x, y = (torch.stack(column) for column in zip(*(data[int(n)] for n in i), strict=True))
            opt.zero_grad()
            F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            schedule.step()
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            Attention(),
            lambda p: torch.optim.AdamW(p, lr=0.02),
            Windows(),
            global_batch=self.batch,
            clip=1.0,
        )
        schedule = self.schedule(opt)
        run.register(schedule=schedule)
        for x, y in run.steps(data, steps=self.steps):
            run.backward(F.cross_entropy(model(x).flatten(0, 1), y.flatten()))
            if run.step(opt):
                schedule.step()
        return weights(model)


def sentences() -> tuple[torch.Tensor, torch.Tensor]:
    """20 sentences of 2 to 8 words, padded: int64 (20, 8) and (20, 8)."""
    source = text(200)
    words = torch.full((20, 9), PAD)
    for number in range(20):
        length = 3 + number % 7
        words[number, :length] = source[number * 9 : number * 9 + length]
    return words[:, :-1].clone(), words[:, 1:].clone()


class TokenCount(Program):
    """Padded sentences: the mean over tokens, by count=."""

    def loss(self, logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=PAD)

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = sentences()
        model = Attention().double()
        opt = torch.optim.Adam(model.parameters(), lr=0.02)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                opt.zero_grad()
                self.loss(model(x[i]), y[i]).backward()
                opt.step()
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            Attention(),
            lambda p: torch.optim.Adam(p, lr=0.02),
            rankup.ResidentData(*sentences()),
            global_batch=self.batch,
        )
        for x, y in run.steps(data, epochs=self.epochs):
            run.backward(self.loss(model(x), y), count=(y != PAD).sum())
            run.step(opt)
        return weights(model)


class TokenCountAccumulated(TokenCount):
    """Padded sentences in micro-batches: accumulate=2 and count=."""

    expected = expect(any_world="not-any-world")

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            Attention(),
            lambda p: torch.optim.Adam(p, lr=0.02),
            rankup.ResidentData(*sentences()),
            global_batch=self.batch,
            accumulate=2,
        )
        for x, y in run.steps(data, epochs=self.epochs):
            run.backward(self.loss(model(x), y), count=(y != PAD).sum())
            run.step(opt)
        return weights(model)


class Lstm(nn.Module):
    """(n, t), (1, n, 8) twice → logits (n, t, WORDS) and the state."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cell, self.head = (
            nn.Embedding(WORDS, 6),
            nn.LSTM(6, 8, batch_first=True),
            nn.Linear(8, WORDS),
        )

    def forward(self, words: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
        output, (h, c) = self.cell(self.embed(words), (h, c))
        return self.head(output), h, c


class TruncatedBptt(Program):
    """An LSTM with truncated backpropagation: the hidden state is carried from batch to batch, and registered."""

    moves = False  # a rank's hidden state is that of its own texts
    expected = expect(any_world="not-any-world")
    epochs = 3
    texts, width = 8, 5

    def columns(self) -> torch.Tensor:
        """int64 (windows · texts, width + 1): row k holds window k // texts of text k % texts."""
        windows = 5
        rows = text(self.texts * windows * self.width + 1)[: self.texts * windows * self.width]
        rows = rows.reshape(self.texts, windows, self.width)
        following = rows.roll(-1, 2)
        return torch.cat([rows, following[:, :, -1:]], 2).transpose(0, 1).reshape(-1, self.width + 1)

    def loss(self, model: Any, rows: torch.Tensor, hidden: list[torch.Tensor]) -> torch.Tensor:
        if not hidden:
            hidden += [torch.zeros(1, len(rows), 8, dtype=torch.float64) for _ in range(2)]
        logits, h, c = model(rows[:, :-1], *hidden)
        hidden[:] = [h.detach(), c.detach()]
        return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())

    def plain(self) -> Result:
        torch.manual_seed(0)
        rows = self.columns()
        model = Lstm().double()
        opt = torch.optim.Adam(model.parameters(), lr=0.02)
        hidden: list[torch.Tensor] = []
        for epoch in range(self.epochs):
            for i in batches(len(rows), self.texts, epoch, shuffle=False):
                opt.zero_grad()
                self.loss(model, rows[i], hidden).backward()
                opt.step()
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            Lstm(),
            lambda p: torch.optim.Adam(p, lr=0.02),
            rankup.ResidentData(self.columns()),
            global_batch=self.texts,
            shuffle=False,
        )
        hidden: list[torch.Tensor] = []
        run.register(hidden=hidden, per_rank=True)
        for rows in run.steps(data, epochs=self.epochs):
            how.update(run, opt, self.loss(model, rows, hidden))
        return weights(model)
