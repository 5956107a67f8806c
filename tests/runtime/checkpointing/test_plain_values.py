"""Numbers, texts and flags in attributes of models and optimizers, which no ``state_dict`` has."""

from __future__ import annotations

import contextlib
import io
import random
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks


class Cooling(nn.Module):
    def __init__(self, warmth: float = 1.0) -> None:
        super().__init__()
        self.inner, self.warmth = nn.Linear(2, 1), warmth
        self.gone = 0.0
        self.last: deque[float] = deque(maxlen=3)
        self.seen: dict[int, tuple[str, list[int]]] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.warmth *= 0.5
        self.last.append(self.warmth)
        self.seen[len(self.seen)] = ("a", [len(x)])
        self.gone = float("nan")
        return self.inner(x) * self.warmth


class Caching(Cooling):
    def __init__(self) -> None:
        super().__init__()
        self.cached: torch.Tensor | None = None
        self.length = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.length < len(x):
            self.cached, self.length = torch.arange(len(x)), len(x)
        assert self.cached is not None
        return super().forward(x) + self.cached[: len(x), None]


def begin(model: nn.Module) -> Any:
    run = rankup.init(precision="fp64")
    data = rankup.ResidentData(torch.ones(12, 2, dtype=torch.float64))
    return run, *run.prepare(model, lambda p: torch.optim.SGD(p, lr=0.01), data, global_batch=2)


def trained(model: nn.Module, saved: Any = None, steps: int = 2) -> tuple[nn.Module, Any]:
    """After some more steps, and the state there."""
    run, model, opt, data = begin(model)
    if saved is not None:
        run.state.load_state_dict(saved)
    for _ in (steps_of := run.steps(data, epochs=1)):
        run.backward(model(torch.ones(2, 2, dtype=torch.float64)).mean())
        run.step(opt)
        steps -= 1
        if steps == 0:
            break
    state = run.state.state_dict()
    steps_of.close()
    return model, state


def test_they_are_restored_also_for_the_second_time():
    _, saved = trained(Cooling())
    model, saved = trained(Cooling(), saved)
    assert model.warmth == 0.5**4
    model = Cooling()
    last = model.last
    model, _ = trained(model, saved)
    assert model.warmth == 0.5**6 and model.gone != model.gone
    assert model.last is last and last == deque([0.5**4, 0.5**5, 0.5**6], 3)
    assert model.seen == {number: ("a", [2]) for number in range(6)}


def test_a_value_that_the_edited_script_begins_with_holds():
    _, saved = trained(Cooling())
    model, _ = trained(Cooling(warmth=8.0), saved)
    assert model.warmth == 8.0 * 0.5**2


def test_a_length_whose_tensors_are_cached_beside_it_is_computed_anew():
    _, saved = trained(Caching())
    model, _ = trained(Caching(), saved)
    assert isinstance(model, Caching) and model.length == 2
    assert model.warmth == 0.5**2  # lost with it, which a warning says


class Thawing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 1)
        self.first.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


def test_layers_that_were_unfrozen_are_so_after_a_second_load():
    run, model, opt, data = begin(Thawing())
    saved: Any = None
    for attempt in range(3):
        if attempt:
            run, model, opt, data = begin(Thawing())
            run.state.load_state_dict(saved)
        for _ in run.steps(data, epochs=1):
            model.first.requires_grad_(True)
            run.backward(model(torch.ones(2, 2, dtype=torch.float64)).mean())
            run.step(opt)
            saved = run.state.state_dict()
            break


def cooled(directory: str, steps: int) -> float:
    run = rankup.init(precision="fp64", snapshots=rankup.Snapshots(directory=directory, every="1 steps"))
    data = rankup.ResidentData(torch.ones(24, 2, dtype=torch.float64))
    model, opt, data = run.prepare(Cooling(), lambda p: torch.optim.SGD(p, lr=0.01), data, global_batch=6)
    for x in run.steps(data, steps=steps):
        run.backward(model(x).mean())
        run.step(opt)
    return model.warmth


@pytest.mark.parametrize("ranks", [1, 3])
def test_they_are_restored_on_another_number_of_ranks(tmp_path: Path, ranks: int):
    assert run_ranks(cooled, 2, str(tmp_path), 2) == [0.25] * 2
    assert run_ranks(cooled, ranks, str(tmp_path), 4) == [0.0625] * ranks


class Holding(nn.Module):
    """A plain number, and beside it a tensor or an object that changes."""

    def __init__(self, held: Any) -> None:
        super().__init__()
        self.inner, self.count, self.held, self.constant = nn.Linear(2, 1), 0, held, [1, 2]
        self.others = (np.array(1.0), torch.tensor(1.0), Endless(), {torch.ones(2): 1}, torch)
        self.adjacency = torch.eye(3).to_sparse()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        if isinstance(self.held, Bag):
            self.held.warmth *= 0.5
        elif isinstance(self.held, np.ndarray):
            self.held *= 0.5
        elif isinstance(self.held, list):
            self.held[0] = self.held[0] * np.float64(0.5)
        else:
            self.held = self.held * 0.5
        return self.inner(x)


class Listing(Cooling):
    """A plain number, and beside it its own weights under other names."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1)
        self.decayed, self.means = [self.inner.weight], {"mean": self.norm.running_mean}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(super().forward(x))


def test_a_number_is_restored_beside_a_list_of_weights():
    _, saved = trained(Listing())
    model, _ = trained(Listing(), saved)
    assert model.warmth == 0.5**4


class Bag:
    warmth = 1.0


class Endless:
    def __len__(self) -> int:
        raise TypeError("endless")


@pytest.mark.parametrize("held", [lambda: torch.ones(2), lambda: np.ones(2), lambda: [np.float64(1.0)], Bag])
def test_a_number_is_not_restored_without_what_changes_beside_it(
    held: Any, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RANKUP_RUN_DIR", str(tmp_path))
    run, model, opt, data = begin(Holding(held()))
    for epoch in run.epochs(1):
        for x in epoch:
            run.backward(model(x).mean())
            run.step(opt)
            saved = repr(run.state.state_dict())
    said = capfd.readouterr().err
    assert "'plain': {}" in saved
    assert "count of Holding changes" in said and "constant" not in said
    assert "held of Holding" in said or held is Bag


class Staged(torch.utils.data.Dataset[Any]):
    def __init__(self) -> None:
        self.stage = 1.0

    def __len__(self) -> int:
        return 24

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.full((2,), self.stage, dtype=torch.float64)


def staged(directory: str, steps: int, *, within: bool = False) -> list[float]:
    run = rankup.init(precision="fp64", snapshots=rankup.Snapshots(directory=directory, every="1 steps"))
    rows = Staged()
    dataset = torch.utils.data.Subset(rows, range(24)) if within else rows
    rows.dataset = rows  # type: ignore[attr-defined]  # it may hold itself
    model, opt, data = run.prepare(
        nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.01), dataset, global_batch=12
    )
    seen = []
    for epoch in run.epochs(steps):
        for x in epoch:
            seen.append(x[0, 0].item())
            run.backward(model(x).mean())
            run.step(opt)
        rows.stage *= 2.0
    return seen


@pytest.mark.parametrize(("ranks", "within"), [(1, False), (3, False), (2, True)])
def test_the_stage_of_a_data_set_is_restored(tmp_path: Path, ranks: int, within: bool):
    train = partial(staged, within=within)
    assert run_ranks(train, 2, str(tmp_path), 2) == [[1.0, 1.0, 2.0, 2.0]] * 2
    assert run_ranks(train, ranks, str(tmp_path), 4) == [[4.0, 4.0, 8.0, 8.0]] * ranks


def with_workers(directory: str, persistent: bool) -> str:
    run = rankup.init(precision="fp64", snapshots=rankup.Snapshots(directory=directory))
    rows, said = Staged(), io.StringIO()
    model, opt, data = run.prepare(
        nn.Linear(2, 1),
        lambda p: torch.optim.SGD(p, lr=0.01),
        rows,
        global_batch=12,
        num_workers=1,
        persistent_workers=persistent,
    )
    with contextlib.redirect_stderr(said):
        for epoch in run.epochs(4):
            for x in epoch:
                run.backward(model(x).mean())
                run.step(opt)
            rows.stage += epoch.index
    return said.getvalue()


@pytest.mark.parametrize("persistent", [True, False])
def test_a_stage_that_persistent_workers_do_not_see_is_warned_of(tmp_path: Path, persistent: bool):
    (said,) = run_ranks(with_workers, 1, str(tmp_path), persistent)
    assert said.count("workers do not see it") == persistent


class Mixed(torch.utils.data.Dataset[Any]):
    def __init__(self) -> None:
        self.rows = torch.ones(12, 2, dtype=torch.float64)
        self.cache: dict[int, torch.Tensor] = {}
        self.handle: object = None

    def __len__(self) -> int:
        return 12

    def __getitem__(self, number: int) -> torch.Tensor:
        self.handle = self.handle or object()
        return self.cache.setdefault(number, self.rows[number])


@pytest.mark.parametrize("shuffles", [True, False])
def test_a_data_set_whose_rows_are_replaced_is_warned_of_and_a_cache_is_not(
    shuffles: bool, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RANKUP_RUN_DIR", str(tmp_path))
    run, rows = rankup.init(precision="fp64"), Mixed()
    model, opt, data = run.prepare(
        nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.01), rows, global_batch=6
    )
    for epoch in run.epochs(2):
        for x in epoch:
            run.backward(model(x).mean())
            run.step(opt)
        if shuffles:
            rows.rows = rows.rows[torch.randperm(12)]
    said = capfd.readouterr().err
    assert ("rows of Mixed (a data set) was replaced" in said) == shuffles
    assert "cache" not in said and "handle" not in said


class Kept(Mixed):
    """Its cache is a tensor, and its samples are a tensor and a list of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.filled = torch.zeros(12)
        self.items = [*self.rows]

    def __getitem__(self, number: int) -> torch.Tensor:
        self.filled[number] += 1
        return super().__getitem__(number) + self.items[number]


@pytest.mark.parametrize("registers", [True, False])
def test_samples_that_are_changed_in_place_are_named_unless_they_are_registered(
    registers: bool, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RANKUP_RUN_DIR", str(tmp_path))
    run, rows = rankup.init(precision="fp64"), Kept()
    model, opt, data = run.prepare(
        nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.01), rows, global_batch=6
    )
    if registers:
        run.register(rows=rows.rows, items=rows.items)
    for epoch in run.epochs(2):
        for x in epoch:
            run.backward(model(x).mean())
            run.step(opt)
        for _ in run.batches(torch.utils.data.Subset(rows, [3, 5]), global_batch=2):
            pass
        rows.rows[:] = rows.rows[torch.randperm(12)]
        random.Random(epoch.index).shuffle(rows.items)
    said = capfd.readouterr().err
    for name in ("rows", "items"):
        assert (f"{name} of Kept (a data set) is changed in place" in said) != registers
    assert "filled" not in said


class Listed(Staged):
    """Its samples are a list, which the script shuffles in place."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = [*range(24)]

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.full((2,), float(self.rows[number]), dtype=torch.float64)


def listed(directory: str, steps: int, alike: bool) -> list[float]:
    run = rankup.init(precision="fp64", snapshots=rankup.Snapshots(directory=directory, every="1 steps"))
    rows = Listed()
    model, opt, data = run.prepare(
        nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.01), rows, global_batch=12
    )
    seen = []
    for epoch in run.epochs(steps):
        for x in epoch:
            seen += x[:, 0].tolist()
            run.backward(model(x).mean())
            run.step(opt)
        (random.Random(epoch.index) if alike else random).shuffle(rows.rows)
    return seen


def test_a_list_of_a_data_set_that_is_shuffled_in_place_is_restored(tmp_path: Path):
    whole = run_ranks(listed, 2, str(tmp_path / "whole"), 4, True)
    first = run_ranks(listed, 2, str(tmp_path / "parts"), 2, True)
    later = run_ranks(listed, 2, str(tmp_path / "parts"), 4, True)
    assert [a + b for a, b in zip(first, later, strict=True)] == whole


def test_a_list_that_each_rank_shuffles_in_its_own_way_is_an_error(tmp_path: Path):
    with pytest.raises(AssertionError, match=r"the list rows of Listed .* in different orders"):
        run_ranks(listed, 3, str(tmp_path), 4, False)


def drawn(epochs: int, change: str) -> str:
    """What rank 0 says. ``change``: what becomes of the list of rows before each inner loop."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        run = rankup.init(precision="fp64")
        rows = Listed()
        model, opt, _ = run.prepare(
            nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.01), rows, global_batch=12
        )
        for epoch in run.epochs(epochs):
            draw = random.Random(epoch.index) if change == "alike" else random
            if change != "read":
                rows.rows = [draw.randrange(9) for _ in range(24)]
            for x in epoch:
                run.backward(model(x).mean())
                run.step(opt)
                if change == "read":
                    rows.rows.append(int(x[0, 0]))
    return said.getvalue()


def test_a_list_that_each_rank_draws_for_itself_is_warned_of_once():
    first, other = run_ranks(drawn, 2, 3, "own")
    sentence = "list rows of Listed (a data set) has changed in training, and the ranks hold different"
    assert first.count(sentence) == 1
    assert not other


@pytest.mark.parametrize("change", ["alike", "read"])
def test_a_list_that_ranks_draw_alike_or_add_to_is_not_warned_of(change: str):
    assert "hold different" not in run_ranks(drawn, 2, 3, change)[0]


class Weighted(torch.utils.data.Dataset[Any]):
    """Rows with a weight for each, and a table of what was read."""

    def __init__(self) -> None:
        self.rows = torch.arange(48.0, dtype=torch.float64).reshape(24, 2) / 48
        self.weights = np.linspace(1, 2, 24)
        self.read = torch.zeros(24)

    def __len__(self) -> int:
        return 24

    def __getitem__(self, number: int) -> tuple[torch.Tensor, float, int]:
        self.read[number] = 1 + number
        return self.rows[number], float(self.weights[number]), number


def weighted(directory: str, epochs: int, change: str) -> tuple[list[float], str]:
    """The weights of the model, and what rank 0 says. ``change``: of the data set, in the loop or behind it."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        run = rankup.init(
            precision="fp64",
            snapshots=rankup.Snapshots(directory=directory, every="2 steps", asynchronous=False),
        )
        data = Weighted()
        if change == "registered":
            run.register(weights=data.weights)
        model, opt, _ = run.prepare(
            nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.01), data, global_batch=12
        )
        for epoch in run.epochs(epochs):
            for x, weight, numbers in epoch:
                each = model(x)[:, 0].square()
                run.backward((each * weight).mean())
                run.step(opt)
                found, loss = numbers, each.detach()
                if change == "registered":
                    found, loss = run.gather(numbers), run.gather(loss)
                if change in ("own samples", "registered"):
                    data.weights[found.numpy()] = 1 + loss.numpy()
            if change == "own order":
                data.rows[:] = data.rows[torch.randperm(24)]
    return [value.item() for value in model.parameters() for value in value.flatten()], said.getvalue()


def test_rows_that_each_rank_shuffles_in_place_in_its_own_way_are_an_error(tmp_path: Path):
    with pytest.raises(AssertionError, match=r"the array rows of Weighted .* in different orders"):
        run_ranks(weighted, 3, str(tmp_path), 4, "own order")


def test_rows_that_one_process_shuffles_in_place_are_warned_of(tmp_path: Path):
    ((_, said),) = run_ranks(weighted, 1, str(tmp_path), 2, "own order")
    assert (
        "rows of Weighted (a data set) is changed in place after the inner loop, and is in no snapshot"
        in said
    )
    assert said.count("rows of Weighted") == 1


def rolled_out(directory: str, registered: bool) -> str:
    """As in PPO: a buffer of zeros, which the code before each inner loop fills."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        run = rankup.init(snapshots=rankup.Snapshots(every="off", directory=directory))
        data = Weighted()
        data.rows = torch.zeros(24, 1)
        model, opt, _ = run.prepare(
            nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.01), data, global_batch=4
        )
        if registered:
            run.register(rows=data.rows)
        for epoch in run.epochs(3):
            if epoch.done == 0:
                data.rows[:] = torch.arange(24.0)[:, None] + float(model.weight)
            for x, *_ in epoch:
                model(x).square().mean().backward()
                opt.step()
                opt.zero_grad()
    return said.getvalue()


@pytest.mark.parametrize("registered", [False, True])
def test_rollouts_that_fill_a_buffer_of_zeros_before_each_epoch_are_warned_of(
    registered: bool, tmp_path: Path
):
    (said,) = run_ranks(rolled_out, 1, str(tmp_path), registered)
    sentence = "rows of Weighted (a data set) changes in training, and is in no snapshot"
    assert said.count(sentence) == (not registered)


def test_weights_of_samples_that_each_rank_changes_for_its_own_samples_are_warned_of(tmp_path: Path):
    (_, first), (_, other) = run_ranks(weighted, 2, str(tmp_path), 3, "own samples")
    assert (
        "array weights of Weighted (a data set) has changed in training, and the ranks hold different"
        in first
    )
    assert "weights of Weighted (a data set) changes in training, and is in no snapshot" in first
    assert "read" not in first and "rows" not in first and other == ""


def test_weights_of_samples_that_are_gathered_and_registered_are_restored(tmp_path: Path):
    ((whole, said),) = run_ranks(weighted, 1, str(tmp_path / "whole"), 4, "registered")
    run_ranks(weighted, 2, str(tmp_path / "parts"), 2, "registered")
    later = run_ranks(weighted, 2, str(tmp_path / "parts"), 4, "registered")
    assert said == "" and [said for _, said in later] == ["", ""]
    assert later[0][0] == later[1][0] == pytest.approx(whole, abs=1e-12)


def test_a_table_of_what_was_read_is_not_warned_of(tmp_path: Path):
    assert [said for _, said in run_ranks(weighted, 2, str(tmp_path), 2, "")] == ["", ""]


class Curious(Cooling):
    """Attributes that cannot be read as others can."""

    def __init__(self) -> None:
        super().__init__()
        self.adjacency, self.rows = torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr()
        self.ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        self.shapes, self.kind, self.dates = (
            torch.empty(3, device="meta"),
            np.dtype("f4"),
            np.datetime64("2020"),
        )
        with torch.inference_mode():
            self.inferred = torch.ones(3)
        self.complexes: list[Any] = [1 + 2j, b"x"]
        self.itself: list[Any] = []
        self.itself.append(self.itself)


def test_attributes_of_rare_kinds_disturb_neither_a_save_nor_a_resume():
    _, saved = trained(Curious())
    model, _ = trained(Curious(), saved)
    assert model.warmth == 0.5**4


class Momentum(torch.optim.Optimizer):
    """Keeps its momentum in an attribute, or what it needs within one step."""

    def __init__(self, parameters: Any, kept: str) -> None:
        super().__init__(parameters, {"lr": 0.01})
        self.kept, self.momentum, self.gradients = kept, {}, []

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        parameters = self.param_groups[0]["params"]
        self.gradients = [p.grad.clone() for p in parameters]
        for p, gradient in zip(parameters, self.gradients, strict=True):
            if self.kept == "in the state":
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
            elif self.kept == "in place":
                momentum = self.momentum.setdefault(p, torch.zeros_like(p))
            else:
                momentum = self.momentum[p] = self.momentum.get(p, torch.zeros_like(p)).clone()
            p.sub_(momentum.mul_(0.9).add_(gradient), alpha=0.01)


@pytest.mark.parametrize("kept", ["in the state", "in place", "replaced"])
def test_tensors_that_an_optimizer_keeps_in_a_dict_of_its_own_are_warned_of(
    kept: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
):
    run = rankup.init(precision="fp64", snapshots=rankup.Snapshots(directory=tmp_path, every="off"))
    rows = rankup.ResidentData(torch.ones(12, 2, dtype=torch.float64))
    model, opt, data = run.prepare(nn.Linear(2, 1), lambda p: Momentum(p, kept), rows, global_batch=2)
    for epoch in run.epochs(2):
        for x in epoch:
            run.backward(model(x).mean())
            run.step(opt)
    said = capfd.readouterr().err
    expected = "warning: momentum of Momentum (an optimizer) is filled or changed in each step"
    assert said.count(expected) == (kept != "in the state"), said
    assert "gradients of Momentum" not in said
