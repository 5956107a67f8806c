"""Tensors that a module carries from one forward pass to the next are named, and what only looks like them is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rankup


class Carrying(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(2, 2)
        self.hidden: Any = None
        self.table: Any = None
        self.features: Any = None
        self.listed: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None or len(self.table) < len(x):
            self.table = torch.ones(len(x), 1, dtype=x.dtype)
        carried = self.hidden[0] if self.hidden is not None else torch.zeros_like(x)
        listed = self.listed[0] if self.listed else torch.zeros_like(x)
        out = self.cell(x + carried + listed) * self.table[: len(x)]
        self.hidden = (out.detach(), out.detach() * 2)
        self.listed[:] = [out.detach()]
        self.features = out.detach()
        return out

    def picture(self) -> torch.Tensor:
        return self.features * 2


@pytest.mark.parametrize("resets", ["never", "before each batch", "after each batch", "before each epoch"])
@pytest.mark.parametrize("registers", [True, False])
def test_a_hidden_state_is_named_unless_it_is_registered_or_reset_in_each_step(
    resets: str,
    registers: bool,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("RANKUP_RUN_DIR", str(tmp_path))
    run = rankup.init(precision="fp64")
    data = rankup.ResidentData(torch.ones(20, 2, dtype=torch.float64))
    model, opt, _ = run.prepare(Carrying(), lambda p: torch.optim.SGD(p, lr=0.01), data, global_batch=4)
    if registers:
        run.register(listed=model.listed, per_rank=True)
    for epoch in run.epochs(2):
        if resets == "before each epoch" and epoch.done == 0:
            model.hidden = None
        for x in epoch:
            if resets == "before each batch":
                model.hidden = None
            run.backward(model(x).square().mean())
            run.step(opt)
            if resets == "after each batch":
                model.hidden = None
    said = capfd.readouterr().err
    assert ("hidden of Carrying is carried" in said) == (resets in ("never", "before each epoch"))
    assert ("listed of Carrying is carried" in said) != registers
    assert "table of" not in said and "features of" not in said
    assert not torch.nn.modules.module._global_forward_pre_hooks
