"""Several trainings in one process, and several stages in one training: each is found again where it was."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.errors import RankupError
from rankup.runtime.checkpointing.stages import check_name
from rankup.snapshots.layout import entries

X = torch.linspace(-1, 1, 10, dtype=torch.float64)[:, None]


def often(folder: Path, every: str) -> rankup.Snapshots:
    """Durable before the training goes on, so that a process that is gone leaves them."""
    return rankup.Snapshots(every=every, directory=folder, asynchronous=False)


def line() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(1, 1)


def weights(model: nn.Module) -> list[float]:
    return [value.item() for value in model.state_dict().values()]


def sweep(folder: Path, names: tuple[str, ...], killed: tuple[int, int] | None) -> list[list[float]]:
    """The weights after each learning rate; ``killed`` in which training, after which step."""
    ends = []
    for number, lr in enumerate((0.1, 0.01, 0.001)):
        run = rankup.init(
            name=names[number] if names else "",
            snapshots=rankup.Snapshots(every="2 steps", directory=folder, asynchronous=False),
            precision="fp64",
        )
        model, opt, data = run.prepare(
            line(),
            lambda p, lr=lr: torch.optim.SGD(p, lr=lr, momentum=0.9),
            rankup.ResidentData(X),
            global_batch=4,
        )
        for x in run.steps(data, epochs=2):
            if killed == (number, run.global_step):
                return ends
            (model(x) - 3 * x).square().mean().backward()
            opt.step()
            opt.zero_grad()
        ends.append(weights(model))
    return ends


def plain_sweep() -> list[list[float]]:
    """Without rankup, but for the order of the samples."""
    from rankup.runtime.data.order import all_rows
    from rankup.runtime.data.sharding import Sharding

    ends = []
    for lr in (0.1, 0.01, 0.001):
        model = line().double()
        opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        for epoch in range(2):
            order = all_rows(Sharding(10, 4, 0, 1, 0, True).order(epoch))
            for low in range(0, 10, 4):
                x = X[order[low : low + 4]]
                (model(x) - 3 * x).square().mean().backward()
                opt.step()
                opt.zero_grad()
        ends.append(weights(model))
    return ends


@pytest.mark.slow
@pytest.mark.parametrize("names", [(), pytest.param(("a", "b", "c"), marks=pytest.mark.campaign)])
def test_each_training_of_a_process_trains_and_resumes_by_itself(tmp_path: Path, names: tuple[str, ...]):
    expected = plain_sweep()
    killed = run_ranks(sweep, 2, tmp_path, names, (1, 5))
    assert len(killed[0]) == 1
    for ends in run_ranks(sweep, 2, tmp_path, names, None):
        for mine, theirs in zip(ends, expected, strict=True):
            assert mine == pytest.approx(theirs, abs=1e-12)
    folders = [tmp_path / name for name in names] or [
        tmp_path,
        tmp_path / "training-2",
        tmp_path / "training-3",
    ]
    assert [[entry.step for entry in entries(folder)] for folder in folders] == [[2, 4, 5, 6]] * 3


def same_name_twice(folder: Path) -> str:
    for _ in range(2):
        try:
            sweep_one(folder, "fold")
        except RankupError as error:
            return error.code
    return "nothing"


def sweep_one(folder: Path, name: str) -> None:
    run = rankup.init(
        name=name,
        snapshots=rankup.Snapshots(every="1 step", directory=folder, asynchronous=False),
        precision="fp64",
    )
    model, opt, data = run.prepare(
        line(), lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(X), global_batch=5
    )
    for x in run.steps(data, epochs=1):
        model(x).square().mean().backward()
        opt.step()


def test_a_name_that_was_trained_to_its_end_is_no_second_trainings(tmp_path: Path):
    assert run_ranks(same_name_twice, 1, tmp_path) == ["training-name-taken"]


@pytest.mark.parametrize(
    "name", ["step-1", "latest", "a/b", "../x", "stage-2", "-x", "x" * 101, "training-2"]
)
def test_a_name_that_is_no_directory_of_its_own_is_refused(name: str):
    with pytest.raises(RankupError, match="cannot name a training"):
        check_name(name)
    check_name("fold-2.b_c")


def stages(folder: Path, killed: tuple[str, int] | None, reuse: bool) -> tuple[list[str], list[float]]:
    """Pre-training, then a second prepare, of the same model or with a head, and fine-tuning. What was done, and the
    weights."""
    did: list[str] = []
    run = rankup.init(
        snapshots=rankup.Snapshots(every="2 steps", directory=folder, asynchronous=False), precision="fp64"
    )
    body = line()
    model, opt, data = run.prepare(
        body, lambda p: torch.optim.Adam(p, lr=0.1), rankup.ResidentData(X), global_batch=4
    )
    for number, x in enumerate(run.steps(data, epochs=1)):
        if killed == ("one", number):
            return did, []
        (model(x) - 3 * x).square().mean().backward()
        opt.step()
        opt.zero_grad()
        did.append(f"one {run.global_step}")
    did.append(f"between {weights(body)[0]:.9f}")
    whole = body if reuse else nn.Sequential(body, nn.Linear(1, 1))
    if not reuse:
        body.requires_grad_(False)
    tuned, tuning, small = run.prepare(
        whole, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), rankup.ResidentData(X[:7]), global_batch=3
    )
    for epoch in run.epochs(2, small):
        for x in epoch:
            if killed == ("two", run.global_step):
                return did, []
            (tuned(x) + x).square().mean().backward()
            tuning.step()
            tuning.zero_grad()
            did.append(f"two {run.global_step}")
    return did, weights(whole)


def said_of_stages(folder: Path, killed: tuple[str, int] | None) -> list[str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        stages(folder, killed, False)
    return [line for line in said.getvalue().splitlines() if "resumed from" in line]


def test_a_resume_says_where_the_loop_is_that_goes_on(tmp_path: Path):
    run_ranks(said_of_stages, 1, tmp_path, ("two", 6))
    (said,) = run_ranks(said_of_stages, 1, tmp_path, None)
    assert said[-1].endswith("resumed from step-6: epoch 2, step 0")


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("world_size", "reuse"),
    [
        (1, False),
        (2, True),
        *(pytest.param(*each, marks=pytest.mark.campaign) for each in ((2, False), (3, True))),
    ],
)
def test_a_training_in_stages_resumes_in_its_second_stage(tmp_path: Path, world_size: int, reuse: bool):
    whole = run_ranks(stages, world_size, tmp_path / "whole", None, reuse)
    run_ranks(stages, world_size, tmp_path / "killed", ("one", 2), reuse)
    run_ranks(stages, world_size, tmp_path / "killed", ("two", 6), reuse)
    resumed = run_ranks(stages, world_size, tmp_path / "killed", None, reuse)
    for (did, end), (did_whole, end_whole) in zip(resumed, whole, strict=True):
        assert end == end_whole
        assert did == [
            *did_whole[2:4],
            *did_whole[-len(did) + 2 :],
        ]  # the first stage gives its last step again
        assert did[2] == "two 6"
    one = run_ranks(stages, 1, tmp_path / "one", None, reuse)[0]
    assert resumed[0][1] == pytest.approx(one[1], abs=1e-9)


def hand_accumulated(folder: Path, killed: int | None, exact: bool) -> tuple[list[float], list[int]]:
    """Windows of four batches, by hand; a save is due at every third step."""
    run = rankup.init(
        snapshots=rankup.Snapshots(every="3 steps", directory=folder, asynchronous=False), precision="fp64"
    )
    model, opt, data = run.prepare(
        line(), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.5), rankup.ResidentData(X), global_batch=3
    )
    for x in run.steps(data, epochs=4):
        number = run.global_step
        if killed == number:
            return [], []
        ((model(x) - 3 * x).square().mean() / 4).backward()
        if (number + 1) % 4 == 0:
            opt.step()
            opt.zero_grad()
        if exact and number == 5:
            run.save()
    return weights(model), [entry.step for entry in entries(folder)]


@pytest.mark.repeated
@pytest.mark.parametrize("world_size", [2, *(pytest.param(n, marks=pytest.mark.campaign) for n in (1, 3))])
@pytest.mark.parametrize("in_a_window", [False, True])
def test_gradients_accumulated_by_hand_survive(tmp_path: Path, world_size: int, in_a_window: bool):
    whole = run_ranks(hand_accumulated, world_size, tmp_path / "whole", None, False)
    run_ranks(hand_accumulated, world_size, tmp_path / "killed", 7, in_a_window)
    last = entries(tmp_path / "killed")[-1].step
    assert last == (6 if in_a_window else 4)  # at the end of a window, unless the script itself saved in one
    resumed = run_ranks(hand_accumulated, world_size, tmp_path / "killed", None, False)
    assert [end for end, _ in resumed] == [end for end, _ in whole]


def test_a_gradient_in_the_memory_of_the_one_before_waits_for_its_step(tmp_path: Path):
    """An allocator soon gives a freed block out again: neither address nor version tell the next gradient apart."""
    run = rankup.init(snapshots=rankup.Snapshots(every="2 steps", directory=tmp_path, asynchronous=False))
    model, opt, data = run.prepare(
        line(), lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(X), global_batch=3
    )
    parameters = list(model.parameters())
    memory = [np.ones(tuple(p.shape), dtype=np.float32) for p in parameters]
    for _ in run.steps(data, steps=3):
        for parameter, block in zip(parameters, memory, strict=True):
            parameter.grad = torch.from_numpy(block)
        if run.global_step != 1:
            opt.step()
            opt.zero_grad()
    first, last = entries(tmp_path)
    assert (first.step, last.step) == (2, 3)
    assert json.loads((first.path / "manifest.json").read_text())["metadata"]["gradients"] is True


def other_world(folder: Path) -> str:
    try:
        hand_accumulated(folder, None, False)
    except RankupError as error:
        return error.code
    return "nothing"


def test_a_window_of_gradients_goes_to_no_other_number_of_ranks(tmp_path: Path):
    run_ranks(hand_accumulated, 1, tmp_path, 7, True)
    assert run_ranks(other_world, 2, tmp_path) == ["mid-window", "mid-window"]


def never_cleared(folder: Path, killed: int | None) -> list[float]:
    """Each step adds to the gradients of those before: odd, and the same after a resume all the same."""
    run = rankup.init(
        snapshots=rankup.Snapshots(every="2 steps", directory=folder, asynchronous=False), precision="fp64"
    )
    model, opt, data = run.prepare(
        line(), lambda p: torch.optim.SGD(p, lr=0.01), rankup.ResidentData(X), global_batch=3
    )
    for x in run.steps(data, epochs=2):
        if killed == run.global_step:
            return []
        (model(x) - 3 * x).square().mean().backward()
        opt.step()
    return weights(model)


@pytest.mark.filterwarnings("ignore:gradients are never cleared")
def test_gradients_that_are_never_cleared_are_part_of_the_state(tmp_path: Path):
    (whole,) = run_ranks(never_cleared, 1, tmp_path / "whole", None)
    run_ranks(never_cleared, 1, tmp_path / "killed", 7)
    assert run_ranks(never_cleared, 1, tmp_path / "killed", None) == [whole]


class Averaging(nn.Module):
    """A value outside of the state_dict that the output depends on, and one that appears at the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = line()
        self.register_buffer("mean", torch.zeros(1), persistent=False)
        self.register_buffer("late", None, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(0.1)
                if self.late is None:
                    self.late = torch.zeros(2, dtype=x.dtype)
                self.late += self.mean
        return self.layer(x) - self.mean + (0 if self.late is None else self.late.sum())


def averaging(folder: Path, killed: int | None) -> dict[str, Any]:
    run = rankup.init(
        snapshots=rankup.Snapshots(every="1 epoch", directory=folder, asynchronous=False), precision="fp64"
    )
    model, opt, data = run.prepare(
        Averaging(), lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(X), global_batch=4
    )
    for x in run.steps(data, epochs=3):
        if killed == run.global_step:
            return {}
        (model(x) - 3 * x).square().mean().backward()
        opt.step()
        opt.zero_grad()
    return {
        name: value.tolist()
        for name, value in (
            *run._context.models[0].named_buffers(),
            *run._context.models[0].named_parameters(),
        )
    }


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [2, *(pytest.param(n, marks=pytest.mark.campaign) for n in (1, 3))])
def test_buffers_outside_of_the_state_dict_survive(tmp_path: Path, world_size: int):
    whole = run_ranks(averaging, world_size, tmp_path / "whole", None)
    run_ranks(averaging, world_size, tmp_path / "killed", 5)
    assert run_ranks(averaging, world_size, tmp_path / "killed", None) == whole
    assert whole[0]["mean"] != [0.0]


def onto_one(folder: Path) -> float:
    run = rankup.init(
        snapshots=rankup.Snapshots(every="off", directory=folder, asynchronous=False), precision="fp64"
    )
    _, _, data = run.prepare(
        Averaging(), lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(X), global_batch=4
    )
    for _ in run.steps(data, epochs=2):
        return float(run._context.models[0].mean)
    return 0.0


def test_buffers_outside_of_the_state_dict_go_to_another_number_of_ranks(tmp_path: Path):
    run_ranks(averaging, 2, tmp_path, 3)
    saved = run_ranks(averaging, 2, tmp_path, 3)  # resumes at the end of the first epoch, and ends there
    assert saved == [{}, {}]
    assert run_ranks(onto_one, 1, tmp_path)[0] != 0.0


def gan(folder: Path, killed: int | None) -> tuple[list[float], list[int]]:
    """Two optimizers, each cleared before its own backward: the generator's adds to the critic's gradients, too."""
    run = rankup.init(snapshots=often(folder, "3 steps"), precision="fp64")
    critic, tune_critic, data = run.prepare(
        line(), lambda p: torch.optim.Adam(p, lr=0.1), rankup.ResidentData(X), global_batch=4
    )
    maker, tune_maker, _ = run.prepare(line(), lambda p: torch.optim.Adam(p, lr=0.1))
    for x in run.steps(data, epochs=4):
        if killed == run.global_step:
            return [], [entry.step for entry in entries(folder)]
        tune_critic.zero_grad()
        (critic(x) - critic(maker(x).detach())).square().mean().backward()
        tune_critic.step()
        tune_maker.zero_grad()
        critic(maker(x)).square().mean().backward()
        tune_maker.step()
    return weights(run._context.models[0]) + weights(run._context.models[1]), []


@pytest.mark.slow
@pytest.mark.filterwarnings("error:gradients are never cleared")
def test_gradients_that_another_loss_leaves_hold_up_no_save(tmp_path: Path):
    whole = run_ranks(gan, 2, tmp_path / "whole", None)
    killed = run_ranks(gan, 2, tmp_path / "killed", 7)
    assert killed[0][1] == [3, 6]
    assert [end for end, _ in run_ranks(gan, 1, tmp_path / "killed", None)] != [
        []
    ]  # onto another number of ranks
    resumed = run_ranks(gan, 2, tmp_path / "killed-2", 7) and run_ranks(gan, 2, tmp_path / "killed-2", None)
    assert [end for end, _ in resumed] == [end for end, _ in whole]


class Codebook(nn.Module):
    """A running mean of what it saw, as a codebook or a queue is, and a counter of forward passes."""

    def __init__(self, gather: bool) -> None:
        super().__init__()
        self.layer = line()
        self.gather = gather
        self.register_buffer("codes", torch.zeros(1))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.run: rankup.Run | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert self.run is not None
        with torch.no_grad():
            seen = self.run.gather(x) if self.gather else x
            self.codes.lerp_(seen.mean(0), 0.1)
            self.calls += 1
        return self.layer(x) - self.codes


def codebook(gather: bool) -> tuple[str, list[float]]:
    run = rankup.init(precision="fp64")
    net = Codebook(gather)
    net.run = run
    model, opt, data = run.prepare(
        net, lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(X), global_batch=4
    )
    try:
        for x in run.steps(data, epochs=2):
            run.backward((model(x) - 3 * x).square().mean())
            opt.step()
            opt.zero_grad()
    except RankupError as error:
        return error.code, []
    return "nothing", [*weights(net), float(net.calls)]


def test_a_buffer_that_each_rank_updates_from_its_own_samples_is_an_error():
    assert [code for code, _ in run_ranks(codebook, 3, False)] == ["buffers-differ"] * 3
    ((_, one),) = run_ranks(codebook, 1, True)
    for code, ends in run_ranks(codebook, 3, True):  # the last step has two samples: one rank has none
        assert code == "nothing"
        assert ends == pytest.approx(one, abs=1e-12)


def ensemble(folder: Path, done: int, name: str = "") -> list[list[float]]:
    """Members that begin with other weights; the first ``done`` are left out."""
    ends = []
    for member in range(done, 2):
        run = rankup.init(name=name and f"{name}-{member}", snapshots=often(folder, "1 epoch"))
        torch.manual_seed(member)
        model, opt, data = run.prepare(
            nn.Linear(1, 1),
            lambda p: torch.optim.SGD(p, lr=0.1),
            rankup.ResidentData(X.float()),
            global_batch=4,
        )
        for x in run.steps(data, epochs=1):
            run.backward(model(x).square().mean())
            run.step(opt)
        ends.append(weights(model))
    return ends


def said_of_ensemble(folder: str, done: int, name: str) -> tuple[list[list[float]], str]:
    import contextlib
    import io

    stream = io.StringIO()
    with contextlib.redirect_stderr(stream):
        ends = ensemble(Path(folder), done, name)
    return ends, stream.getvalue()


@pytest.mark.repeated
@pytest.mark.parametrize(("name", "done"), [("", 0), ("", 1), ("member", 1)])
def test_a_training_that_takes_the_end_of_another_one_is_warned_of(tmp_path: Path, name: str, done: int):
    [(whole, first)] = run_ranks(said_of_ensemble, 1, str(tmp_path), 0, name)
    [(again, second)] = run_ranks(said_of_ensemble, 1, str(tmp_path), done, name)
    assert "began with other weights" not in first
    assert (again == whole[done:]) == ("began with other weights" not in second) == (not done or bool(name))
