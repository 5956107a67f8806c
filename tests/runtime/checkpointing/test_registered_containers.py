"""What a registered thing has held since its loop began is restored in place: the script may know it by other names."""

from __future__ import annotations

import contextlib
import copy
import io
from collections import Counter, deque
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.runtime.checkpointing.identities import Held
from rankup.runtime.checkpointing.registered_containers import ContainerAdapter

X = torch.linspace(-1, 1, 12, dtype=torch.float64)[:, None]
CPU = torch.device("cpu")


class Statistics:
    pass


def aliased(folder: Path, killed: int | None, kind: str) -> Any:
    """A training that uses what a registered thing holds by names of its own."""
    run = rankup.init(
        snapshots=rankup.Snapshots(every="3 steps", directory=folder, asynchronous=False), precision="fp64"
    )
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.01), rankup.ResidentData(X), global_batch=6
    )
    held: dict[str, Any] = {
        "n": torch.zeros((), dtype=torch.float64),
        "seen": [],
        "sums": numpy.zeros(2),
        "rows": {"a": [torch.zeros(1)]},
        "first": X[0],  # a view of the data, in whose place the loop puts something else
        "ping": torch.zeros(1),
        "pong": torch.ones(1),
    }
    n, seen, sums, rows, ping, pong = (held[name] for name in ("n", "seen", "sums", "rows", "ping", "pong"))
    thing: Any = held
    if kind == "object":
        thing = Statistics()
        vars(thing).update(held)
        held = vars(thing)
    run.register(held=thing)
    for x in run.steps(data, epochs=4):
        if run.global_step == killed:
            return None
        n += 1
        seen.append(run.global_step)
        sums += 1
        rows["a"][0].add_(1)
        rows.setdefault("b", []).append(1)
        held["first"] = run.gather(x)[0] * 2
        ping.add_(2)
        held["ping"], held["pong"] = held["pong"], held["ping"]
        (model(x) - n * x).square().mean().backward()
        opt.step()
        opt.zero_grad()
    by_name = [n.item(), seen, sums.tolist(), rows["a"][0].item(), rows["b"], ping.item(), pong.item()]
    in_it = [held["n"] is n, held["seen"] is seen, held["sums"] is sums, held["rows"] is rows]
    return [by_name, in_it, held["ping"].item(), held["pong"].item(), held["first"].item(), X.sum().item()]


@pytest.mark.parametrize("kind", ["dict", "object"])
def test_names_of_the_script_and_the_registered_thing_have_one_object_after_a_resume(
    tmp_path: Path, kind: str
):
    (whole,) = run_ranks(aliased, 1, tmp_path / "whole", None, kind)
    assert run_ranks(aliased, 1, tmp_path / "killed", 5, kind) == [None]
    assert run_ranks(aliased, 1, tmp_path / "killed", None, kind) == [whole]
    assert whole[0][0] == 8.0 and whole[1] == [True] * 4


def restored(thing: Any, again: Any) -> ContainerAdapter:
    """``again``, as a new process has made it, with what a snapshot has of ``thing``."""
    saved = ContainerAdapter("thing", thing, CPU, Held()).state_dict()
    adapter = ContainerAdapter("thing", again, CPU, Held())
    adapter.loop_begins()
    adapter.load_state_dict(saved)
    return adapter


def test_what_the_loop_has_put_into_a_place_does_not_overwrite_what_lay_there():
    data = torch.zeros(3)
    begun = {"best": data[0]}
    first = ContainerAdapter("thing", begun, CPU, Held())
    first.loop_begins()
    begun["best"] = torch.tensor(7.0)
    again = {"best": data[1]}
    second = ContainerAdapter("thing", again, CPU, Held())
    second.loop_begins()
    second.load_state_dict(first.state_dict())
    assert again["best"] == 7.0
    assert data.tolist() == [0.0, 0.0, 0.0]


def test_an_object_that_a_container_holds_twice_is_one_object_again():
    one, tensor, array = [1], torch.ones(2), numpy.ones(2)
    again: list[Any] = []
    restored([one, {"same": one}, (tensor, tensor), array, [array]], again)
    assert again[0] is again[1]["same"] and again[2][0] is again[2][1] and again[3] is again[4][0]
    assert again[0] == [1]


def test_equal_objects_stay_two():
    again: list[Any] = []
    restored([[1], [1], torch.ones(1), torch.ones(1)], again)
    assert again[0] is not again[1] and again[2] is not again[3]


def test_a_shape_that_the_training_has_changed_is_made_anew():
    begun = {"seen": torch.zeros(2)}
    first = ContainerAdapter("thing", begun, CPU, Held())
    first.loop_begins()
    begun["seen"].resize_(3)
    again = {"seen": torch.zeros(2)}
    second = ContainerAdapter("thing", again, CPU, Held())
    second.loop_begins()
    second.load_state_dict(first.state_dict())
    assert again["seen"].shape == (3,)


def test_a_tensor_that_the_loop_put_away_is_not_kept_in_memory():
    held = {"best": torch.zeros(2)}
    adapter = ContainerAdapter("held", held, CPU, Held())
    adapter.loop_begins()
    held["best"] = torch.ones(2)
    assert adapter._held.at(("held", "best")) is None


def replaced(folder: Path, killed: int | None) -> Any:
    run = rankup.init(
        snapshots=rankup.Snapshots(every="3 steps", directory=folder, asynchronous=False), precision="fp64"
    )
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.01), rankup.ResidentData(X), global_batch=6
    )
    thing = Holder(deque(maxlen=2))
    run.register(thing=thing)
    for x in run.steps(data, epochs=4):
        if run.global_step == killed:
            return None
        thing.recent = deque([*thing.recent, run.global_step], maxlen=2)
        thing.seen = {run.global_step}
        model(x).sum().backward()
        opt.step()
        opt.zero_grad()
    return repr(vars(thing))


def shared(folder: Path, killed: int | None) -> Any:
    """What each step makes is at two places: of one object, of two registered things, and of a list and its holder."""
    run = rankup.init(
        snapshots=rankup.Snapshots(every="1 steps", directory=folder, asynchronous=False), precision="fp64"
    )
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.0), rankup.ResidentData(X), global_batch=4
    )
    first, second = (
        SimpleNamespace(a=None, b=None, row=None, pair=None, still=[3]),
        SimpleNamespace(a=None, rows=[], tensor=None, still=None),
    )
    names: dict[str, Any] = {}
    known: list[float] = []
    # The order of registration does not matter.
    things = {"first": first, "second": second, "names": names, "known": known}
    for name in things if killed else reversed(things):
        run.register(**{name: things[name]})
    for x in run.steps(data, epochs=2):
        if run.global_step == killed:
            return None
        if run.global_step == 2:
            first.a = first.b = second.a = [0.0]
            names["a"], names["known"] = first.a, known
            first.row = torch.zeros(2)
            second.rows.append(first.row)
            second.tensor = names["row"] = first.row
            first.pair = (first.row, numpy.zeros(2))
            names["array"] = first.pair[1]
            second.still = first.still
        if run.global_step >= 2:
            first.a.append(1.0)
            known.append(2.0)
            first.row += 1
            names["array"] += 1
        model(x).square().mean().backward()
        opt.step()
        opt.zero_grad()
    rows = [first.pair[0], second.rows[0], second.tensor, names["row"]]
    one = [first.b is first.a, second.a is first.a, names["a"] is first.a, names["known"] is known]
    one.append(second.still is first.still)
    return (
        one + [row is first.row for row in rows] + [first.pair[1] is names["array"]],
        first.a,
        first.row.tolist(),
    )


def test_what_two_places_share_is_one_object_after_a_resume(tmp_path: Path):
    whole, same = run_ranks(shared, 2, tmp_path / "whole", None)
    assert all(whole[0]) and whole[1] == [0.0, *[1.0] * 4] and whole[2] == [4.0, 4.0] and same == whole
    assert run_ranks(shared, 2, tmp_path / "killed", 4) == [None, None]
    assert run_ranks(shared, 2, tmp_path / "killed", None) == [whole, whole]


class Holder(SimpleNamespace):
    def __init__(self, recent: Any) -> None:
        self.recent, self.seen = recent, None


def test_a_deque_that_each_step_makes_anew_keeps_its_length_and_a_set_its_kind(tmp_path: Path):
    (whole,) = run_ranks(replaced, 1, tmp_path / "whole", None)
    run_ranks(replaced, 1, tmp_path / "killed", 5)
    assert run_ranks(replaced, 1, tmp_path / "killed", None) == [whole]
    assert whole == "{'recent': deque([6, 7], maxlen=2), 'seen': {7}}"


class Mode(Enum):
    COLD = 1
    WARM = 2


class Phases:
    """Objects in a list, and one of them under a name as well."""

    def __init__(self) -> None:
        self.phases = [SimpleNamespace(steps=0), SimpleNamespace(steps=0)]
        self.current: Any = self.phases[0]
        self.pair: tuple[list[int], list[int]] = ([], [])
        self.log: list[Any] = [SimpleNamespace(steps=0)]
        self.best: Any = None  # before the objects
        self.mixed: list[Any] = [SimpleNamespace(), 1, 2]
        self.mode = Mode.COLD
        self.asides = (
            SimpleNamespace(mode=Mode.WARM),
            SimpleNamespace(mode=Mode.WARM),
        )  # registered before this
        self.aside: Any = self.asides[0]


def advance(phases: Phases, first: list[int], step: int) -> None:
    phases.current.steps += 1
    first.append(step)
    phases.log.append(step)
    phases.mode = Mode.WARM  # the same object in each place


def move(phases: Phases, first: list[int], step: int) -> None:
    phases.current = phases.phases[1]
    phases.current.steps += 1


def point(phases: Phases, first: list[int], step: int) -> None:
    phases.aside = phases.asides[step % 2]


def shrink(phases: Phases, first: list[int], step: int) -> None:
    phases.current.steps += 1
    if len(phases.phases) > 1:
        phases.phases.pop()


def choose(phases: Phases, first: list[int], step: int) -> None:
    phases.best = phases.phases[0]


def shorten(phases: Phases, first: list[int], step: int) -> None:
    del phases.mixed[2:]


def with_phases(folder: Path, killed: int | None, body: Any) -> Any:
    run = rankup.init(
        snapshots=rankup.Snapshots(every="3 steps", directory=folder, asynchronous=False), precision="fp64"
    )
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.01), rankup.ResidentData(X), global_batch=6
    )
    phases = Phases()
    first = phases.pair[0]
    coefficients = {"alpha": nn.Parameter(torch.ones(1, dtype=torch.float64))}
    alpha = coefficients["alpha"]
    run.register(left=phases.asides[0], right=phases.asides[1])
    run.register(phases=phases, coefficients=coefficients)
    try:
        for x in run.steps(data, epochs=4):
            if run.global_step == killed:
                return None
            body(phases, first, run.global_step)
            with torch.no_grad():
                alpha.add_(1.0)
            (model(x) * alpha.detach()).sum().backward()
            opt.step()
            opt.zero_grad()
    except rankup.RankupError as error:
        return error.code, error.message.partition(":")[0]
    shown = (
        [each.steps for each in phases.phases],
        phases.pair,
        first,
        phases.log[1:],
        phases.current is phases.phases[0],
        phases.mode.name,
    )
    return shown, coefficients["alpha"].item(), alpha.item(), coefficients["alpha"] is alpha


def test_lists_in_a_tuple_parameters_and_what_was_appended_to_a_list_of_objects_go_on(tmp_path: Path):
    (whole,) = run_ranks(with_phases, 1, tmp_path / "whole", None, advance)
    run_ranks(with_phases, 1, tmp_path / "killed", 5, advance)
    assert run_ranks(with_phases, 1, tmp_path / "killed", None, advance) == [whole]
    steps = [*range(8)]
    assert whole == (([8, 0], (steps, []), steps, steps, True, "WARM"), 9.0, 9.0, True)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (move, "phases.current is another of its objects than when the loop began"),
        (point, "phases.aside is another of the run's things than when the loop began"),
        (choose, "phases.best is another of its objects than when the loop began"),
        (shorten, "phases.mixed[2] is gone, which was there when the loop began"),
        (shrink, "phases.phases[1] is gone, which was there when the loop began"),
    ],
)
def test_an_object_that_has_another_place_is_refused(tmp_path: Path, body: Any, says: str):
    assert run_ranks(with_phases, 1, tmp_path, None, body) == [("unsaveable-state", says)]


@pytest.mark.parametrize("kind", [dict, SimpleNamespace])
def test_names_of_parts_of_a_registered_thing_are_no_state_of_their_own(tmp_path: Path, kind: Any):
    """With ``--lost stop`` the first look ends the attempt if it names one of them."""
    stop = {"RANKUP_LOST": "stop"}
    assert run_ranks(named_parts, 1, tmp_path, 5, kind, env=stop) == [None]
    assert run_ranks(named_parts, 1, tmp_path, None, kind, env=stop) == [(8.0, [*range(8)])]


def named_parts(folder: Path, killed: int | None, kind: Any) -> Any:
    run = rankup.init(
        snapshots=rankup.Snapshots(every="3 steps", directory=folder, asynchronous=False), precision="fp64"
    )
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.01), rankup.ResidentData(X), global_batch=6
    )
    n, seen = torch.zeros((), dtype=torch.float64), list[int]()
    run.register(statistics=kind(n=n, curves={"train": (seen,)}))
    for x in run.steps(data, epochs=4):
        if run.global_step == killed:
            return None
        n += 1
        seen.append(run.global_step)
        (model(x) * n).sum().backward()
        opt.step()
        opt.zero_grad()
    return n.item(), seen


def of_many_kinds(folder: Path, killed: int | None) -> Any:
    run = rankup.init(
        snapshots=rankup.Snapshots(every="3 steps", directory=folder, asynchronous=False), precision="fp64"
    )
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.01), rankup.ResidentData(X), global_batch=6
    )
    keeper = SimpleNamespace(best=None, counts=None, recent=None, seen=None, timer=0)
    run.register(keeper=keeper)
    run.forget("timer")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        for x in run.steps(data, epochs=4):
            if run.global_step == killed:
                return None
            model(x).square().mean().backward()
            opt.step()
            opt.zero_grad()
            keeper.timer += 1
            if run.global_step == 2:
                keeper.best = copy.deepcopy(model.state_dict())
                keeper.counts, keeper.recent, keeper.seen = Counter(a=1), deque([1, 2], maxlen=3), {1}
    assert said.getvalue().count("not in snapshots, since run.forget names it: keeper.timer") == 1
    kinds = [type(each).__name__ for each in vars(keeper).values()]
    return (
        kinds,
        keeper.best["weight"].item(),
        keeper.counts,
        keeper.recent,
        keeper.recent.maxlen,
        keeper.seen,
    )


def test_what_training_puts_into_an_attribute_has_its_kind_after_a_resume(tmp_path: Path):
    (whole,) = run_ranks(of_many_kinds, 1, tmp_path / "whole", None)
    assert whole[0] == ["OrderedDict", "Counter", "deque", "set", "int"] and whole[4] == 3
    run_ranks(of_many_kinds, 1, tmp_path / "killed", 5)
    assert run_ranks(of_many_kinds, 1, tmp_path / "killed", None) == [whole]
