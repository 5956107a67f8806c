"""Loops as people write them: each trains what it says, or is an error that names the form that does."""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.errors import RankupError
from rankup.runtime.checkpointing import saves
from rankup.snapshots.layout import entries


def prepared(folder: Path | None = None, every: str = "off") -> tuple[rankup.Run, nn.Module, Any, Any]:
    run = rankup.init(
        snapshots=rankup.Snapshots(every=every, directory=folder, asynchronous=False), precision="fp64"
    )
    data = rankup.ResidentData(torch.linspace(-1, 1, 12)[:, None])
    model, opt, feed = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=4
    )
    return run, model, opt, feed


def step(model: nn.Module, opt: Any, x: torch.Tensor) -> None:
    (model(x) - 2 * x).square().mean().backward()
    opt.step()
    opt.zero_grad()


def code_of(body: Callable[[], object]) -> str:
    try:
        body()
    except RankupError as error:
        return error.code
    return "nothing"


def test_a_second_loop_over_what_is_trained_says_which_form_is_meant():
    run, model, opt, data = prepared()

    def body() -> None:
        for _ in range(3):
            for x in run.steps(data, epochs=1):
                step(model, opt, x)

    assert code_of(body) == "loop-per-epoch"
    assert run.global_step == 3  # of the first loop
    assert code_of(lambda: next(iter(run.steps(data, epochs=3)))) == "loop-per-epoch"


def test_an_epoch_left_by_a_named_iterator_ends_like_a_break():
    run, model, opt, data = prepared()
    seen = []
    for epoch in run.epochs(4):
        iterator = iter(epoch)
        step(model, opt, next(iterator))
        seen.append(epoch.index)
    del iterator
    gc.collect()
    assert seen == [0, 1, 2, 3]
    assert run.global_step == 4
    with pytest.raises(rankup.RankupError, match="in the body of a loop only"):
        _ = run.batch
    assert (data.position.epoch, data.position.step) == (4, 0)


def test_an_epoch_has_its_batches_once():
    run, model, opt, data = prepared()

    def body() -> None:
        for epoch in run.epochs(1):
            for _ in range(2):
                for x in epoch:
                    step(model, opt, x)

    assert code_of(body) == "epoch-iterated-twice"


@pytest.mark.parametrize("nested", [False, True])
def test_two_loops_at_once_are_an_error(tmp_path: Path, nested: bool):
    run, model, opt, first = prepared(tmp_path)
    _, _, second = run.prepare(nn.Linear(1, 1), None, rankup.ResidentData(torch.zeros(8, 1)), global_batch=3)

    def body() -> None:
        if nested:
            for x in run.steps(first, epochs=1):
                for _ in run.steps(second, epochs=1):
                    step(model, opt, x)
        else:
            for x, _ in zip(run.steps(first, epochs=1), run.steps(second, epochs=1), strict=False):
                step(model, opt, x)

    assert code_of(body) == "two-loops"
    _, _, third = run.prepare(nn.Linear(1, 1), None, rankup.ResidentData(torch.zeros(8, 1)), global_batch=3)
    for x in run.steps(third, epochs=1):  # and nothing is left open
        step(model, opt, x)


def evaluation_in_a_zip() -> tuple[bool, bool, int, object]:
    run, *_ = prepared()
    a, b = rankup.ResidentData(torch.zeros(8, 1)), rankup.ResidentData(torch.ones(8, 1))
    pairs = sum(
        run.batch.samples
        for _ in zip(run.batches(a, global_batch=4), run.batches(b, global_batch=4), strict=False)
    )
    zipped = torch.is_grad_enabled()
    peek = run.batches(a, global_batch=4)
    next(peek)
    off = torch.is_grad_enabled()
    del peek
    assert torch.is_grad_enabled()
    return zipped, off, run.sum(pairs), run._context.batch


@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.campaign), 2])
def test_gradients_come_back_after_evaluations_in_a_zip_and_after_a_peek(world_size: int):
    assert run_ranks(evaluation_in_a_zip, world_size) == [(True, False, 8, None)] * world_size


def test_evaluations_that_take_turns_must_be_cut_alike():
    run, *_ = prepared()
    a, b = rankup.ResidentData(torch.zeros(8, 1)), rankup.ResidentData(torch.ones(9, 1))
    assert code_of(lambda: list(zip(run.batches(a), run.batches(b), strict=False))) == "uneven-zip"
    assert torch.is_grad_enabled()


def test_an_evaluation_that_was_not_finished_does_not_hold_up_training():
    run, model, opt, data = prepared()
    left = run.batches(rankup.ResidentData(torch.zeros(8, 1)), global_batch=2)
    next(left)
    before = [p.item() for p in model.parameters()]
    for x in run.steps(data, epochs=1):
        step(model, opt, x)
    assert [p.item() for p in model.parameters()] != before
    assert code_of(lambda: next(left)) == "evaluation-overtaken"
    assert torch.is_grad_enabled()


class Boom(Exception):
    pass


def test_an_exception_while_a_save_is_in_flight_leaves_the_directory_to_the_next_loop(tmp_path: Path):
    run, model, opt, data = prepared(tmp_path, "1 step")

    def body() -> None:
        for x in run.steps(data, epochs=2):
            step(model, opt, x)
            if run.global_step == 2:
                raise Boom

    with pytest.raises(Boom):
        body()
    _, _, other = run.prepare(nn.Linear(1, 1), None, rankup.ResidentData(torch.zeros(8, 1)), global_batch=3)
    for x in run.steps(other, epochs=2):
        step(model, opt, x)
    assert entries(tmp_path / "stage-2")[-1].step == 9


def test_a_save_in_the_body_counts_its_step(tmp_path: Path):
    run, model, opt, data = prepared(tmp_path)
    for x in run.steps(data, epochs=1):
        step(model, opt, x)
        if run.global_step == 1:
            run.save()
            taken = run.state.state_dict()
    assert entries(tmp_path)[-1].step == 2
    assert (taken["metadata"]["step"], taken["metadata"]["positions"][0]["at"]) == (2, [0, 2])


def by_steps(folder: Path, steps: int, killed: int | None) -> tuple[int, list[float], tuple[int, int]]:
    run, model, opt, data = prepared(folder, "2 steps")
    count = 0
    run.forget("count")
    for x in run.steps(data, steps=steps):
        if killed == run.global_step:
            return count, [], (0, 0)
        step(model, opt, x)
        count += 1
    return count, [p.item() for p in model.parameters()], data.position.resume()


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.campaign), 3])
def test_a_loop_over_a_number_of_steps_ends_there_also_after_a_resume(tmp_path: Path, world_size: int):
    whole = run_ranks(by_steps, world_size, tmp_path / "whole", 8, None)
    assert whole[0][0] == 8
    assert whole[0][2] == (2, 2)  # the third epoch of three steps each
    run_ranks(by_steps, world_size, tmp_path / "killed", 8, 5)
    resumed = run_ranks(by_steps, world_size, tmp_path / "killed", 8, None)
    assert [each[0] for each in resumed] == [4] * world_size
    assert [each[1:] for each in resumed] == [each[1:] for each in whole]
    longer = run_ranks(by_steps, world_size, tmp_path / "killed", 9, None)  # to the end of an epoch
    assert longer[0][2] == (3, 0)
    assert longer[0][0] == 2  # the last step of the loop that was done is given again


def test_epochs_or_steps_and_at_least_one():
    run, _, _, data = prepared()
    assert code_of(lambda: list(run.steps(data))) == "epochs-or-steps"
    assert code_of(lambda: list(run.steps(data, epochs=1, steps=1))) == "epochs-or-steps"
    assert code_of(lambda: list(run.steps(data, steps=0))) == "bad-length"


def in_the_middle_of_a_step() -> list[str]:
    run = rankup.init(precision="fp64")
    model, opt, data = run.prepare(
        nn.Linear(1, 1),
        lambda p: torch.optim.SGD(p, lr=0.1),
        rankup.ResidentData(torch.zeros(8, 1)),
        global_batch=4,
        accumulate=2,
    )
    said = []
    for x in run.steps(data, epochs=1):
        run.backward(model(x).square().mean())
        run.step(opt)
        said.append(code_of(run.state.state_dict))
    return said


def test_no_state_is_taken_between_micro_batches():
    assert run_ranks(in_the_middle_of_a_step, 1) == [["mid-step", "nothing"] * 2]


def behind_the_loop(folder: Path, keeps: bool, when: int) -> tuple[list[str], list[float]]:
    """Weights that the code behind the inner loop exchanges, as an average of weights is tried out. ``keeps``: whether
    the state before an epoch's last step is copied."""
    import os
    import signal

    from rankup.runtime.checkpointing import saves, stop

    stop.AGREE_EVERY_S = 0.0
    saves.KEEPING_SHARE = 1e9 if keeps else 0.0
    run = rankup.init(
        snapshots=rankup.Snapshots(every="off", directory=folder, asynchronous=False), precision="fp64"
    )
    data = rankup.ResidentData(torch.linspace(-1, 1, 12)[:, None].repeat(1, 128))
    torch.manual_seed(1)
    model, opt, feed = run.prepare(
        nn.Linear(128, 128), lambda p: torch.optim.Adam(p, lr=0.01), data, global_batch=4
    )
    did = []
    run.forget("did")
    try:
        for epoch in run.epochs(3):
            for x in epoch:
                step(model, opt, x)
            kept = [p.detach().clone() for p in model.parameters()]
            for p in model.parameters():
                p.data.mul_(0.5)
            for number, _ in enumerate(run.batches(data, global_batch=4)):
                if number == 1 and epoch.index == when:
                    os.kill(os.getpid(), signal.SIGTERM)
            for p, value in zip(model.parameters(), kept, strict=True):
                p.data.copy_(value)
            did.append(f"tested {epoch.index}")
    except SystemExit:
        did.append("stopped")
    return did, [p.detach().sum().item() for p in model.parameters()]


@pytest.mark.parametrize("keeps", [False, True])
def test_weights_exchanged_behind_the_loop_are_never_what_is_saved(tmp_path: Path, keeps: bool):
    (whole,) = run_ranks(behind_the_loop, 1, tmp_path / "whole", keeps, -1)
    (stopped,) = run_ranks(behind_the_loop, 1, tmp_path / "stopped", keeps, 1)
    # If nothing else is saved, that code runs to its end before the run stops.
    assert stopped[0] == (["tested 0", "stopped"] if keeps else ["tested 0", "tested 1", "stopped"])
    (resumed,) = run_ranks(behind_the_loop, 1, tmp_path / "stopped", keeps, -1)
    assert resumed[0] == (["tested 1", "tested 2"] if keeps else ["tested 2"])
    assert resumed[1] == whole[1]


def saved_twice(folder: Path) -> list[str]:
    run, model, opt, data = prepared(folder, "3 steps")
    for x in run.steps(data, epochs=2):
        step(model, opt, x)
        if run.global_step == 5:
            run.save()
    return [entry.name for entry in entries(folder)]


def test_a_step_that_is_saved_again_does_not_push_an_earlier_one_out(tmp_path: Path):
    assert run_ranks(saved_twice, 1, tmp_path) == [["step-3", "step-6", "step-6-2"]]


def groups_of_loops(folder: Path) -> int:
    import torch.distributed as dist

    run, model, opt, data = prepared(folder, "1 step")
    counts = []
    for _ in range(3):
        for x in run.steps(data, epochs=1):
            step(model, opt, x)
        counts.append(len(dist.distributed_c10d._world.pg_map))
        _, _, data = run.prepare(
            nn.Linear(1, 1), None, rankup.ResidentData(torch.zeros(8, 1)), global_batch=3
        )
    return max(counts) - min(counts)


def test_loops_after_the_first_form_no_process_group(tmp_path: Path):
    assert run_ranks(groups_of_loops, 2, tmp_path) == [0, 0]


def behind_without_its_body(folder: Path, killed: int | None) -> list[str]:
    """The code behind the inner loop uses what the loop has set, as people write it."""
    saves.KEEPING_SHARE = math.inf  # else a busy machine decides whether the state is copied
    run, model, opt, data = prepared(folder, "3 steps")
    said = []
    run.forget("said")
    for epoch in run.epochs(3):
        for x in epoch:
            if killed == run.global_step:
                return said
            step(model, opt, x)
            loss = float(x.sum())
        said.append(f"{epoch.index}: {loss:.6f}")
    return said


def test_a_save_due_at_an_epochs_last_step_takes_the_code_behind_along(tmp_path: Path):
    (whole,) = run_ranks(behind_without_its_body, 1, tmp_path / "whole", None)
    (before,) = run_ranks(behind_without_its_body, 1, tmp_path / "killed", 7)
    (after,) = run_ranks(behind_without_its_body, 1, tmp_path / "killed", None)
    assert before + after == whole
    saved = [entry.step for entry in entries(tmp_path / "whole")]
    # 8: before the last step, which a script that is started again gets once more
    assert saved == [3, 6, 8, 9]


HELD = """
import torch, rankup
run = rankup.init(device="cpu")
model, opt, data = run.prepare(torch.nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1),
                               rankup.ResidentData(torch.ones(12, 2)), global_batch=4)
batches = iter(run.steps(data, epochs=20))
for _ in range(17):
    model(next(batches)).mean().backward(); opt.step(); opt.zero_grad()
print(run.global_step)
"""


@pytest.mark.slow
def test_a_loop_that_a_variable_holds_ends_before_python_does(tmp_path: Path):
    environ = {**os.environ, "RANKUP_RUN_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", HELD], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "16\n"
    assert "Exception ignored" not in done.stderr


def counted_batches(accumulate: int, exact: str) -> tuple[int, int, int, int]:
    """Of an epoch: its length, the batches that it gave, its steps, and those that were taken."""
    run = rankup.init(exact=exact)
    data = rankup.ResidentData(torch.arange(18.0).reshape(18, 1))
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.0), data, global_batch=8, accumulate=accumulate
    )
    given = 0
    for epoch in run.epochs(1):
        length, steps = len(epoch), epoch.steps
        for x in epoch:
            given += 1
            run.backward(model(x).mean())
            run.step(opt)
    return length, given, steps, run.global_step


@pytest.mark.parametrize(
    ("world_size", "accumulate", "exact", "given"),
    [(1, 1, "same-world", 3), (2, 4, "same-world", 12), (2, 1, "any-world", 6)],
)
def test_the_length_of_an_epoch_is_what_a_progress_bar_counts(world_size, accumulate, exact, given):
    for told in run_ranks(counted_batches, world_size, accumulate, exact):
        assert told == (given, given, 3, 3)
