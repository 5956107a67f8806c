"""What a rank opens of rankup until its first step: ten thousand ranks open it at once, on one file system."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rankup
from rankup.world.ports import hold_port

PACKAGE = Path(rankup.__file__).parent
_BYTECODE = re.compile(r"__pycache__/(\w+)\.[\w-]+\.pyc")
#: A busy machine starts seven Pythons with torch.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LIMIT = 100
#: Rank 0 also writes the records of steps and epochs, and watches what no snapshot holds.
LIMIT_OF_RANK_0 = 106

SCRIPT = """
import json, os, sys
from pathlib import Path

opened = set()
sys.addaudithook(lambda event, args: opened.add(str(args[0])) if event == "open" else None)
import torch
import rankup

run = rankup.init()
x = torch.arange(80.0).reshape(40, 2) / 40
data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
model, opt, data = run.prepare(
    torch.nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=8
)
for a, b in run.steps(data, steps=3):  # before the last one a state is kept
    loaded = [name for name in sys.modules if name.partition(".")[0] == "rankup"]
    if run.global_step == 0:
        written = json.dumps([sorted(loaded), sorted(opened)])
        Path(os.environ["COUNTS"], str(run.world.rank)).write_text(written)
    loss = (model(a) - b).square().mean()
    run.backward(loss)
    run.step(opt)
"""


class Counts:
    """Of one rank at its first step."""

    def __init__(self, written: Path, run: Path) -> None:
        self.modules, opened = json.loads(written.read_text())
        # A module is one file to read: its bytecode, or the source where there is none.
        ours = (name for name in opened if name.startswith(f"{PACKAGE}{os.sep}"))
        self.of_rankup = {_BYTECODE.sub(r"\1.py", name) for name in ours}
        self.of_the_run = {os.path.relpath(name, run) for name in opened if name.startswith(f"{run}{os.sep}")}


def counted(folder: Path, ranks: int) -> list[Counts]:
    """A training on ``ranks`` fresh processes, in a run directory."""
    run, counts, script = folder / "run", folder / "counts", folder / "train.py"
    for path in (run / "records", counts):
        path.mkdir(parents=True)
    script.write_text(SCRIPT)
    with hold_port() as port:
        started = [
            subprocess.Popen(
                [sys.executable, str(script)],
                env={
                    **{name: value for name, value in os.environ.items() if not name.startswith("RANKUP_")},
                    **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)},
                    **{"LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"},
                    **{"MASTER_PORT": str(port.getsockname()[1]), "OMP_NUM_THREADS": "1"},
                    **{"RANKUP_RUN_DIR": str(run), "RANKUP_PROGRESS": "off", "COUNTS": str(counts)},
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(ranks)
        ]
        said = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0] * ranks, said
    return [Counts(counts / str(rank), run) for rank in range(ranks)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Counts]]:
    """By the number of ranks."""
    return {ranks: counted(tmp_path_factory.mktemp(f"ranks-{ranks}"), ranks) for ranks in (1, 2, 4)}


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_rank_opens_few_files_of_rankup_until_its_first_step(runs: dict[int, list[Counts]], ranks: int):
    for rank, counts in enumerate(runs[ranks]):
        limit = LIMIT if rank else LIMIT_OF_RANK_0
        count = len(counts.of_rankup)
        assert count <= limit, (
            f"rank {rank} of {ranks} opens {count} files of rankup until its first step, and may open {limit}: import "
            "what it needs only later in the function that needs it. It has loaded:\n"
            + "\n".join(counts.modules)
        )


def test_what_most_runs_do_not_need_is_not_loaded(runs: dict[int, list[Counts]]):
    for counts in runs[2]:
        rare = ("tracing", "loggers", "data.stream", "data.samplers", "loop.loss_scaling")
        loaded = [
            name
            for name in counts.modules
            if name.startswith(tuple(f"rankup.runtime.{each}" for each in rare))
            or name.startswith(("rankup.strategies.any_world", "rankup.strategies.experimental"))
        ]
        assert loaded == []


def test_what_a_rank_opens_does_not_depend_on_the_number_of_ranks(runs: dict[int, list[Counts]]):
    for rank in (0, 1):
        two, four = runs[2][rank], runs[4][rank]
        assert two.modules == four.modules
        assert two.of_rankup == four.of_rankup
        assert two.of_the_run == four.of_the_run


def test_a_rank_but_the_first_opens_its_own_file_of_the_run_directory_alone(runs: dict[int, list[Counts]]):
    for rank, counts in enumerate(runs[4]):
        if rank:
            assert counts.of_the_run == {f"records/rank-{rank}.jsonl"}
