"""Variables that a loop carries from pass to pass and that no snapshot has: what a resume would lose, and has lost."""

from __future__ import annotations

import copy
import enum
import gc
import importlib.util
import itertools
import math
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import rankup
from ranks import run_ranks
from rankup.runtime.tracing.script_variables import variables_of
from runtime.checkpointing.carrying import attempts, begin, said, step


class Stopper:
    def __init__(self) -> None:
        self.best, self.bad, self.patience = math.inf, 0, 3

    def __call__(self, loss: float) -> bool:
        if loss < self.best:
            self.best = loss
        else:
            self.bad += 1
        return self.bad >= self.patience


class Average:
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.sum = 0.0

    def update(self, value: float) -> None:
        self.sum += value


counted = 0


def count() -> None:
    global counted
    counted += 1


def careless(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    best, best_weights, losses, stopper, average = math.inf, None, [], Stopper(), Average()
    begun, last, limit = time.time(), 0.0, 100
    for epoch in run.epochs(3):
        total = 0.0
        average.reset()
        for batch in epoch:
            loss = step(run, model, opt, batch, stop)
            total, last = total + loss, loss
            average.update(loss)
            count()
        losses.append(total)
        if total < min(best, limit):
            best, best_weights = total, copy.deepcopy(model.state_dict())
        stopper(total)
        run.print(begun - time.time(), last, average.sum, end="")
        begun = time.time()
    assert best_weights is not None


def averaged(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    lately: list[dict[str, Any]] = []
    for epoch in run.epochs(2):
        for batch in epoch:
            step(run, model, opt, batch, stop)
        lately.append(copy.deepcopy(model.state_dict()))


def test_a_list_of_weights_can_be_registered_as_it_is(tmp_path: Path):
    (first,) = run_ranks(said, 1, averaged, str(tmp_path))
    assert "carries lately" in first and "run.register(lately=lately) before the loop" in first


def test_the_first_epoch_ends_with_a_warning_of_what_a_resume_would_lose(tmp_path: Path):
    (first,) = run_ranks(said, 1, careless, str(tmp_path))
    steps, epochs = first.splitlines()
    assert "carries counted from one pass to the next, and no snapshot has it" in steps
    assert "carries best, best_weights, losses and stopper.best from one pass to the next" in epochs
    assert (
        "begin best_weights with a value of its type instead of None, run.register(best_weights=best_weights) before"
        in epochs
    )
    assert "values = run.register(best=…)" in epochs and "test_carried_variables.py:" in epochs


class Shadow:
    def __init__(self, model: nn.Module) -> None:
        self.weights = list(model.parameters())
        self.shadow = [weight.detach().clone() for weight in self.weights]

    def update(self) -> None:
        for mine, weight in zip(self.shadow, self.weights, strict=True):
            mine.lerp_(weight.detach(), 0.1)


def naming_weights(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    weights, named, first = list(model.parameters()), dict(model.named_parameters()), model.weight
    counts, shadow, alone = {"weight": model.weight, "steps": 0}, Shadow(model), nn.Parameter(torch.zeros(2))
    norm = nn.BatchNorm1d(1)
    run.register(norm=norm)
    means = [norm.running_mean]
    for epoch in run.epochs(2):
        for batch in epoch:
            step(run, model, opt, batch, stop)
            nn.utils.clip_grad_norm_(weights, 1.0)
            first.data.clamp_(-1.0, 1.0)
            named["bias"].data.clamp_(-1.0, 1.0)
            counts["steps"] += 1
            shadow.update()
            alone.data.add_(1.0)
            norm(model(batch).detach())
            means[0].clamp_(-1.0, 1.0)


def test_other_names_of_a_models_weights_are_no_loss(tmp_path: Path):
    (said,) = attempts(naming_weights, tmp_path, (-1,))[0]
    assert 'carries alone, counts["steps"] and shadow.shadow from one pass to the next' in said
    assert said.count("warning") == 1


def weighing_samples(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    weights = torch.ones(8)
    for epoch in run.epochs(2):
        for batch in epoch:
            loss = step(run, model, opt, batch, stop)
            weights[(batch[:, 0] / 2).long()] = loss


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_row_for_each_sample_is_spoken_of_where_ranks_have_different_samples(tmp_path: Path, ranks: int):
    said = attempts(weighing_samples, tmp_path, (-1,), ranks)[0][0]
    assert "carries weights from one pass to the next" in said
    assert ("weights[run.gather(indices)] = run.gather(new_rows)" in said) is (ranks > 1)


def counting(directory: str, stop: int) -> None:
    """Batches by ``next``, and as many of them as an epoch has."""
    run, model, opt = begin(directory)
    for epoch in run.epochs(2):
        batches, i, total = iter(epoch), 0, 0.0
        while i < len(epoch):
            batch = next(batches, None)
            if batch is None:
                break
            total += step(run, model, opt, batch, stop)
            i += 1


def test_a_count_of_the_epochs_steps_that_begins_again_is_told_where_to_begin(tmp_path: Path):
    lacking = attempts(counting, tmp_path, (2, -1))[1][0]
    assert "i (2 when it was saved, 0 now)" in lacking
    assert "i = epoch.done before the inner loop counts its steps" in lacking


def test_a_resume_says_what_it_has_lost_and_what_the_values_were(tmp_path: Path):
    _, (second,), (third,) = attempts(careless, tmp_path, (5, 8, -1))
    lost, lacking = (line for line in second.splitlines() if "resume" in line and "now)" in line)
    assert "this resume has lost them: best (" in lost and "inf now)" in lost
    assert "losses (list of 1 when it was saved, list of 0 now)" in lost and "counted (5 when it was" in lost
    assert (
        "this epoch is resumed after its step 1" in lacking
        and "total (" in lacking
        and "average.sum (" in lacking
    )
    assert "last (" not in lost and "begun (" not in lost + lacking
    assert "best_weights (OrderedDict of 2 when it was saved, None now)" in lost
    # The third attempt begins at the start of an epoch: its sums over steps lack nothing.
    assert "this resume has lost them" in third and "lack these steps" not in third


def careful(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    losses: list[float] = []
    values = run.register(best=math.inf, losses=losses)
    for epoch in run.epochs(3):
        for batch in epoch:
            loss = step(run, model, opt, batch, stop)
            run.meter.add(loss=loss)
        total = run.meter.means()["loss"]
        losses.append(total)
        values.best = min(values.best, total)


def positions(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    for epoch in run.epochs(3):
        number = epoch.done
        for batch in epoch:
            step(run, model, opt, batch, stop)
            number += 1
        print(number, file=sys.stderr)


def stored_by_itself(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    file = Path(directory).with_suffix(".best")
    best = float(file.read_text()) if file.exists() else math.inf
    for epoch in run.epochs(3):
        for batch in epoch:
            best = min(best, step(run, model, opt, batch, stop))
            file.write_text(str(best))


def test_what_is_registered_or_stored_by_the_script_itself_is_not_lost(tmp_path: Path):
    assert attempts(careful, tmp_path / "careful", (5, 8, -1)) == [[""], [""], [""]]
    assert attempts(positions, tmp_path / "positions", (6, -1)) == [["4\n"], ["4\n4\n"]]
    _, (second,) = attempts(stored_by_itself, tmp_path / "own", (6, -1))
    assert "lost" not in second


def flat(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    running = 0.0
    for batch in run.steps(run._context.feeds[-1], steps=8):
        running = 0.9 * running + 0.1 * step(run, model, opt, batch, stop)


def test_the_flat_loop_and_two_ranks_of_which_the_first_one_speaks(tmp_path: Path):
    first, second = attempts(flat, tmp_path, (3, -1), ranks=2)
    assert "carries running from one pass" in first[0] and first[0].count("\n") == 1
    assert "running (" in second[0] and "0.0 now)" in second[0]
    assert (first[1], second[1]) == ("", "")


class Trainer:
    def __init__(self, directory: str, stop: int) -> None:
        self.run, self.model, self.opt = begin(directory)
        self.stop, self.best, self.shown, self.total = stop, math.inf, 0.0, 0.0

    def fit(self) -> None:
        for epoch in self.run.epochs(2):
            self.total = 0.0
            for batch in epoch:
                self.learn(batch)
            self.judge()

    def learn(self, batch: torch.Tensor) -> None:
        loss = step(self.run, self.model, self.opt, batch, self.stop)
        self.shown = loss
        self.total += loss

    def judge(self) -> None:
        if self.total < self.best:
            self.best = self.total


def train_by_class(directory: str, stop: int) -> None:
    Trainer(directory, stop).fit()


def test_attributes_of_a_class_that_trains(tmp_path: Path):
    (first,), (second,) = attempts(train_by_class, tmp_path, (6, -1))
    (line,) = first.splitlines()
    assert "carries self.best from one pass" in line
    assert "self.best (" in second and "self.total (" in second and "self.shown" not in second


def test_a_frame_does_not_keep_the_tensors_of_a_step():
    def body() -> weakref.ref[torch.Tensor]:
        batch = torch.ones(3)
        assert variables_of(sys._getframe())["batch"] is batch
        gone = weakref.ref(batch)
        batch = torch.zeros(3)
        assert gone() is None and batch is not None
        return gone

    assert body()() is None
    gc.collect()


def test_the_variables_that_a_script_has_asked_for_stay():
    def body() -> dict[str, Any]:
        rate = 0.1
        mine = locals()
        variables_of(sys._getframe())
        assert rate == mine["rate"]
        return mine

    assert body()["rate"] == 0.1


def beside_the_registered(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    best = 100.0
    values = run.register(best=best, worst=0.0)
    for epoch in run.epochs(1):  # a loop that does not use them yet
        for batch in epoch:
            step(run, model, opt, batch, stop)
    for epoch in run.epochs(3):
        for batch in epoch:
            loss = step(run, model, opt, batch, stop)
        best, values.worst = min(best, loss), max(values.worst, loss)


def test_a_variable_in_place_of_the_registered_value_is_named_and_a_value_of_a_later_loop_is_not(
    tmp_path: Path,
):
    (first,) = run_ranks(said, 1, beside_the_registered, str(tmp_path))
    assert "carries best from one pass to the next" in first and "worst" not in first
    assert "not the variable: write values.best in place of best" in first


def by_comprehension(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    for epoch in run.epochs(2):
        losses = [step(run, model, opt, batch, stop) for batch in epoch]
        assert losses


def test_a_comprehension_over_an_epoch_that_is_resumed_in_its_middle_is_named(tmp_path: Path):
    (first,), (second,) = attempts(by_comprehension, tmp_path, (2, -1))
    assert (
        first == "" and "this epoch is resumed after its step 2, and the comprehension or call at" in second
    )


def replacing(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    average, hidden, history = {"weight": torch.zeros(1, 2)}, torch.zeros(1), [0.0]
    run.register(average=average, hidden=hidden, history=history)
    for epoch in run.epochs(2):
        for batch in epoch:
            loss = step(run, model, opt, batch, stop)
            average = {name: 0.9 * value + loss for name, value in average.items()}
            hidden = hidden + loss
        history = [*history, loss]


def changing_in_place(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    average, hidden, history = {"weight": torch.zeros(1, 2)}, torch.zeros(1), [0.0]
    run.register(average=average, hidden=hidden, history=history)
    for epoch in run.epochs(2):
        for batch in epoch:
            loss = step(run, model, opt, batch, stop)
            average.update({name: 0.9 * value + loss for name, value in average.items()})
            hidden += loss
        history.append(loss)


def test_a_registered_object_in_whose_place_the_loop_puts_another_one_is_warned_of(tmp_path: Path):
    (text,) = run_ranks(said, 1, replacing, str(tmp_path))
    for name in ("average", "hidden", "history"):
        assert text.count(f"puts another object into {name}, which was registered") == 1


def test_a_registered_object_that_is_changed_in_place_is_not_warned_of(tmp_path: Path):
    assert run_ranks(said, 1, changing_in_place, str(tmp_path)) == [""]


OTHER_MODULE = """
running = 0

def train(run, trained):
    for _ in range(1):
        trained(running)
        for number in range(running):
            last = number
"""


def under_another_module(directory: str, stop: int) -> None:
    """Both have a variable of one name; that of the other module is plain, and never changes."""
    path = Path(directory) / "other_module.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(OTHER_MODULE)
    spec = importlib.util.spec_from_file_location("other_module", path)
    assert spec is not None and spec.loader is not None
    other = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(other)
    other.train(None, lambda _: changing_global(directory, stop))


running = torch.zeros(0)


def changing_global(directory: str, stop: int) -> None:
    global running
    run, model, opt = begin(directory)
    running = torch.zeros(1)
    run.register(running=running)
    for epoch in run.epochs(2):
        for batch in epoch:
            running += step(run, model, opt, batch, stop)


def test_variables_of_two_modules_may_have_one_name(tmp_path: Path):
    assert run_ranks(said, 1, under_another_module, str(tmp_path)) == [""]


class Totals:
    total = 0


class Stage(enum.Enum):
    WARM = 0
    MAIN = 1


@dataclass(slots=True)
class Slotted:
    count: int = 0
    seen: int = 0


class Defaults:
    lowest = math.inf
    steps = 0

    def set_if_lower(self, loss: float) -> None:
        if loss < self.lowest:
            self.lowest = loss

    def start_epoch(self) -> None:
        Defaults.steps += 1


def smoothed(by: float) -> Callable[[float], float]:
    value = 0.0

    def update(loss: float) -> float:
        nonlocal value
        value = by * value + (1 - by) * loss
        return value

    return update


def falling() -> Iterator[float]:
    weight = 1.0
    while True:
        yield weight
        weight *= 0.9


def note(state: Slotted) -> None:
    state.count += 1


def judged(model: Any, meter: Average) -> float:
    """Under another name than its caller's."""
    meter.reset()
    meter.update(model.weight.sum().item())
    return meter.sum


def trained(
    run: rankup.Run, model: Any, opt: Any, epoch: Any, stop: int, states: Any, weights: Iterator[float]
) -> float:
    losses, meters = [], {"loss": Average()}
    for batch in epoch:
        losses.append(step(run, model, opt, batch, stop) * next(weights))
        note(states)
        for meter in meters:
            meters[meter].update(losses[-1])
    return sum(losses) + meters["loss"].sum


def hidden(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    losses: list[float] = []
    rows: list[Any] = []
    best, stage, state, low, smooth, weights = (
        math.inf,
        Stage.WARM,
        Slotted(),
        Defaults(),
        smoothed(0.9),
        falling(),
    )
    options = {"rate": 1.0}
    best_model, counts, callbacks, judgement = None, Counter(), [Defaults()], Average()
    best_model = copy.deepcopy(model)
    other, numbers, begun = iter(DataLoader(torch.arange(100))), itertools.count(), time.time()
    for epoch in run.epochs(3):
        low.start_epoch()
        loss = trained(run, model, opt, epoch, stop, state, weights)
        losses.append(loss)
        best = min(best, loss)
        counts["epochs"] += 1
        for callback in callbacks:
            callback.set_if_lower(loss)
        if judged(model, judgement) < 1000:
            best_model = copy.deepcopy(model)
        Totals.total += 1
        options["rate"] *= 0.9
        print(options)
        low.set_if_lower(loss)
        rows += [(loss, time.time() - begun, next(other), next(numbers), smooth(loss))]
        stage = Stage.MAIN if stage is Stage.WARM else stage
    print(best_model)


HIDDEN = (
    "losses (list of 1 when it was saved, list of 0 now)",  # not those of the inner function
    "rows (list of 1 when it was saved",
    "best (",
    "stage (Stage.MAIN when it was saved, Stage.WARM now)",
    "state.count (4 when it was saved, 0 now)",
    "low.lowest (",
    "Defaults.steps (1 when",
    "smooth.value (",
    "weights (a generator with weight = ",
    "other (an iterator of a DataLoader after 1 batches",
    'counts["epochs"] (1 when it was saved, nothing now)',
    "callbacks (list of 1, with other values",
    "Totals.total (1 when",
    "numbers (count(1) when it was saved, count(0) now)",
)


def test_closures_generators_enums_slots_and_what_functions_are_given(tmp_path: Path):
    (first,), (second,) = attempts(hidden, tmp_path / "between", (4, -1))
    assert [each for each in HIDDEN if each not in second] == [], second
    names = {each.split(" (")[0] for each in HIDDEN}
    assert [each for each in names if each not in first] == []
    assert "best_model" in first and "run.register(best_model=best_model) before the loop" in first
    assert "give the objects in callbacks the methods" in first and "judgement" not in first + second
    assert "run.register(counts=counts) before" in first
    assert "options" in first and "rate" not in first + second  # the whole dict is named
    assert "begun" not in first + second and "state.seen" not in first + second
    _, (inner,) = attempts(hidden, tmp_path / "inside", (5, -1))
    (lacking,) = (line for line in inner.splitlines() if "lack these steps" in line)
    assert "losses (list of 1 when it was saved, list of 0 now)" in lacking
    assert "weights" not in lacking
    assert "meters (dict of 1, with other values than when it was saved)" in lacking


class Kept:
    def __init__(self) -> None:
        self.lines = 0

    def note(self) -> None:
        self.lines += 1

    def state_dict(self) -> dict[str, Any]:
        return {"lines": self.lines}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.lines = state["lines"]


class Careful:
    """Each epoch sets its attributes in one method and reads them in another one."""

    def __init__(self, directory: str, stop: int) -> None:
        self.run, self.model, self.opt = begin(directory)
        self.stop, self.values = stop, self.run.register(best=math.inf)
        self.mean, self.rate, self.number, self.shown, self.batch = math.nan, 0.0, 0, {}, None
        self.begun = time.time()
        self.callbacks = [Kept()]
        self.run.register(kept=self.callbacks[0])

    def fit(self) -> None:
        for epoch in self.run.epochs(3):
            self.set_rate(epoch.index)
            self.train(epoch)
            self.judge()
            for callback in self.callbacks:
                callback.note()
            self.show()

    def set_rate(self, number: int) -> None:
        self.number = number
        self.rate = 0.1 * 0.5**number
        self.begun = time.time()

    def train(self, epoch: Any) -> None:
        for self.batch in epoch:
            self.run.meter.add(loss=self.learn())

    def learn(self) -> float:
        return step(self.run, self.model, self.opt, self.batch, self.stop)

    @torch.no_grad()
    def judge(self) -> None:
        self.mean = self.run.meter.means()["loss"]
        self.shown["mean"] = self.mean
        self.shown["rate"] = self.rate
        if self.number > 100:
            return
        self.values.best = min(self.values.best, self.mean)

    def show(self) -> None:
        assert self.shown["mean"] == self.mean and self.shown["rate"] == self.rate
        assert time.time() - self.begun < 1000


def carefully(directory: str, stop: int) -> None:
    Careful(directory, stop).fit()


def test_what_one_method_sets_and_another_one_reads_in_each_pass_is_not_lost(tmp_path: Path):
    (first,), (second,), (third,) = attempts(carefully, tmp_path, (5, 8, -1))
    assert (first, third) == ("", "") and second == ""


class Counting(Careful):
    def set_rate(self, number: int) -> None:
        super().set_rate(number)
        self.calls = getattr(self, "calls", 0) + 1
        self.show_total()

    def show_total(self) -> None:
        self.sum_of_all = self.sum_of_all + self.calls

    sum_of_all = 0


def count_by_class(directory: str, stop: int) -> None:
    Counting(directory, stop).fit()


def test_a_method_of_the_trainer_whose_name_begins_with_set_does_not_hide_the_trainer(tmp_path: Path):
    _, (second,) = attempts(count_by_class, tmp_path, (6, -1))
    assert "self.rate" not in second and "self.number" not in second  # which the parent's method sets
    assert "self.sum_of_all (3 when it was saved, 0 now)" in second or "self.sum_of_all (1 when" in second


class Raising:
    """An object that must not be asked anything."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


class Sized:
    """A class, which a script's functions may name, has no length."""

    def __len__(self) -> int:
        return 1


class Property:
    @property
    def value(self) -> float:
        raise AssertionError("a property was read")


def with_odd_objects(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    raising, thing, best, queue = Raising(), Property(), math.inf, torch.zeros(5000)
    for epoch in run.epochs(3):
        for batch in epoch:
            loss = step(run, model, opt, batch, stop)
        best = min(best, loss)
        queue.data[epoch.index] = loss
        for each in [raising]:
            assert each is raising and Sized is not None
        if best < -1:
            print(thing.value)


def test_odd_objects_are_not_asked_and_hide_no_other_variable(tmp_path: Path):
    (first,), (second,) = attempts(with_odd_objects, tmp_path, (6, -1))
    assert "carries best and queue from one pass" in first and "best (" in second
