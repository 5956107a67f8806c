"""A model whose form changes in training: what its own loading makes room for is resumed, all else is said at once."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.ao.quantization import (
    FakeQuantize,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
)
from torch.nn.utils import parametrizations, prune

import rankup
from rankup.core.choices import ACCEPT, LOST, STOP
from rankup.runtime.checkpointing import stages

SAID = "warning: the training has changed the form of its model"
Change = Callable[[nn.Module, int], object]  # gets the model and the step that is done


class Quantized(nn.Module):
    """Observers, per channel and of a whole tensor, whose buffers get their shape in the first forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 6), nn.Linear(6, 2)
        scheme: dict[str, Any] = {"dtype": torch.qint8, "qscheme": torch.per_channel_symmetric, "ch_axis": 0}
        self.weights = FakeQuantize(MovingAveragePerChannelMinMaxObserver, -128, 127, **scheme)
        self.outputs = FakeQuantize(MovingAverageMinMaxObserver, 0, 255)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.linear(x, self.weights(self.first.weight), self.first.bias)
        return self.last(self.outputs(torch.relu(hidden)))


class Plain(nn.Linear):
    """A buffer that gets its shape in the first forward, and whose module loads as torch does: not."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.register_buffer("largest", torch.zeros(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.largest.numel() == 0:
            self.largest = x.detach().abs().amax(0)
        self.largest = torch.maximum(self.largest, x.detach().abs().amax(0))
        return super().forward(x / self.largest)


class Made(Plain):
    """The same, and of a buffer that is not there before; its own loading makes both."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "seen"):
            self.register_buffer("seen", torch.zeros(len(x)))
        self.seen += x.detach().sum(1)
        return super().forward(x) + self.seen.mean()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        assert f"{prefix}weight" in state_dict  # as a loading may expect
        for name in ("largest", "seen"):
            if f"{prefix}{name}" in state_dict:
                self.register_buffer(name, torch.empty_like(state_dict[f"{prefix}{name}"]))
        super()._load_from_state_dict(state_dict, prefix, *others)


def train(
    folder: Path,
    make: Callable[[], nn.Module],
    change: Change = lambda model, step: None,
    stop: int | None = None,
    every: str = "1 step",
    epochs: int = 3,
) -> tuple[dict[str, torch.Tensor], str]:
    """Epochs of four steps, or until before step ``stop`` is done: the state of the model, and what was said."""
    stages._unnamed.clear()  # as in a process of its own
    said = io.StringIO()
    with contextlib.redirect_stderr(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's words about its quantization
        run = rankup.init(snapshots=rankup.Snapshots(every=every, directory=folder, asynchronous=False))
        data = rankup.ResidentData(torch.linspace(-1, 3, 16).reshape(8, 2))
        model, opt, _ = run.prepare(make(), lambda p: torch.optim.Adam(p, lr=0.1), data, global_batch=2)
        for epoch in run.epochs(epochs):
            for x in epoch:
                if run.global_step + 1 == stop:
                    return {}, said.getvalue()
                run.backward(model(x).square().mean())
                run.step(opt)
                change(model, run.global_step + 1)
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}, said.getvalue()


@pytest.mark.repeated
@pytest.mark.parametrize("make", [Quantized, lambda: nn.Sequential(Quantized(), Made()), Made])
def test_buffers_for_which_a_module_itself_makes_room_are_resumed_exactly(make, tmp_path):
    whole, said = train(tmp_path / "whole", make)
    assert SAID not in said
    assert train(tmp_path / "cut", make, stop=6)[0] == {}
    resumed, said = train(tmp_path / "cut", make)
    assert SAID not in said
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole), (whole, resumed)


def test_a_buffer_for_which_none_makes_room_is_said_after_the_first_step_and_refused_by_a_resume(tmp_path):
    _, said = train(tmp_path, Plain, stop=2, every="2 steps")
    assert said.count(SAID) == 1 and "largest: float32[0] then, float32[2] now" in said, said
    train(tmp_path, Plain, stop=4)
    with pytest.raises(rankup.RankupError, match="largest is float32") as error:
        train(tmp_path, Plain)
    assert error.value.code == "other-model"


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.1), nn.Linear(8, 2))


def with_dropout() -> nn.Sequential:
    model = network()
    model[1].p = 0.3
    return model


def pruned(model: Any, step: int) -> None:
    if step % 4 == 0:
        prune.l1_unstructured(model[0], "weight", amount=0.2)


def replaced(model: Any, step: int) -> None:
    model[1] = nn.Identity()


def grown(model: Any, step: int) -> None:
    if step == 1:
        model.append(nn.Linear(2, 2))


def filled(model: Any, step: int) -> None:
    model.get_submodule("0").register_buffer("seen", torch.zeros(1))


CHANGES = {
    pruned: "0.weight: float32[8, 2] then, absent now",
    replaced: "1: Dropout(p=0.1, inplace=False) then, Identity() now",
    grown: "3: absent then, Linear(in_features=2, out_features=2, bias=True) now",
    filled: "0.seen: absent then, float32[1] now",
}


@pytest.mark.repeated
@pytest.mark.parametrize("change", CHANGES)
def test_a_form_that_the_training_changes_is_said_once_with_what_changed(change, tmp_path):
    _, said = train(tmp_path, network, change, every="off")
    assert said.count(SAID) == 1 and CHANGES[change] in said, said
    assert "before the loop" in said and 'prune.identity(module, "weight")' in said


def test_in_a_job_of_a_queue_it_is_the_error_to_end_with_unless_it_is_accepted(tmp_path, monkeypatch):
    monkeypatch.setenv(LOST.variable, STOP)
    with pytest.raises(rankup.RankupError, match=r"0\.weight: float32") as error:
        train(tmp_path / "stop", network, pruned)
    assert error.value.code == "other-model" and error.value.exit_code == 1
    monkeypatch.setenv(LOST.variable, ACCEPT)
    assert SAID not in train(tmp_path / "accept", network, pruned)[1]


@pytest.mark.parametrize(("every", "told"), [("1 step", 6), ("off", 9)])
def test_it_is_said_at_the_next_save_or_look(every, told, tmp_path):
    """The looks are after steps 1, 2, 4 and 8, and after epochs 1 and 2: steps 4 and 8."""

    def change(model: nn.Module, step: int) -> None:
        if step == 5:
            replaced(model, step)

    for stop in range(told - 1, told + 1):
        _, said = train(tmp_path / f"{stop}", network, change, stop=stop, every=every)
        assert (SAID in said) == (stop == told), (stop, said)


def identity() -> nn.Sequential:
    model = network()
    prune.identity(model[0], "weight")
    return model


def normed() -> nn.Sequential:
    model = network()
    parametrizations.weight_norm(model[0])
    parametrizations.spectral_norm(model[2])
    nn.utils.spectral_norm(model.append(nn.Linear(2, 2))[3])
    return model


def lazy() -> nn.Sequential:
    model = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.Linear(8, 2))
    model(torch.zeros(2, 2))
    return model


def annealed(model: Any, step: int) -> None:
    model[1].p = 0.3
    model[0].requires_grad_(step % 2 == 0)


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("make", "change"), [(identity, pruned), (normed, id), (lazy, id), (with_dropout, annealed)]
)
def test_a_form_that_was_made_before_the_loop_raises_no_alarm_and_is_resumed_exactly(make, change, tmp_path):
    def changed(model: nn.Module, step: int) -> None:
        if change is not id:
            change(model, step)

    whole, said = train(tmp_path / "whole", make, changed)
    assert SAID not in said, said
    train(tmp_path / "cut", make, changed, stop=6)
    resumed, said = train(tmp_path / "cut", make, changed)
    assert SAID not in said, said
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_what_the_last_step_changes_a_resume_changes_again(tmp_path):
    def convert(model: nn.Module, step: int) -> None:
        if step == 8:
            replaced(model, step)

    for _ in range(2):  # the second one gives the last step again
        assert SAID not in train(tmp_path, network, convert, epochs=2)[1]
