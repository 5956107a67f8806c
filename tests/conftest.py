"""A test that leaks environment variables, threads, child processes or process groups fails, whatever it asserts."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from multiprocessing import resource_tracker, spawn
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings

import ranks
from units import Units, in_order, mark_repetitions
from warm.start import end, ready, start_first_server, start_server, write_clients

# A million objects of imported modules and of collected tests stay until the end; see pytest_collection_finish.
gc.disable()

# No timed assertions: machines are noisy, and hypothesis would count that as a failure. Each run tries other examples:
# some dozens are enough.
settings.register_profile("untimed", deadline=None, max_examples=40)
settings.load_profile("untimed")

# A shell starts background jobs with SIGINT ignored, and so would everything be that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# OpenMP's threads would burn their core while they wait, and other tests need it. Read when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# pytest sets it itself, between the phases of a test.
_IGNORED_VARIABLES = {"PYTEST_CURRENT_TEST"}
# Set once by libraries on import and never by us.
_LIBRARY_VARIABLES = {"KMP_INIT_AT_FORK", "KMP_DUPLICATE_LIB_OK", "TORCHINDUCTOR_CACHE_DIR"}

_SERVERS: set[int] = set()  # process ids of those of ``warm``


# Whose tests are about values that no snapshot holds.
_ABOUT_LOST = (
    "unregistered",
    "programs",
    "verify",
    "campaign",
    "cluster",
    "test_objects",
    "test_lost",
    "test_model_forms",
)


@pytest.fixture(autouse=True)
def _what_a_test_notes_is_no_state(request: pytest.FixtureRequest) -> Iterator[None]:
    """The lists in which the training of a test notes what it does change, and no snapshot has them."""
    with (
        pytest.MonkeyPatch.context() as patch
    ):  # of its own, so that what a test sets is undone before it is checked
        if not {*request.path.with_suffix("").parts} & {*_ABOUT_LOST}:
            patch.setenv("RANKUP_LOST", "accept")
        yield


def pytest_configure(config: pytest.Config) -> None:
    # Before the processes of the test run are started: all have the same, which imports while they collect.
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        start_first_server()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    return Units(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)  # before ``-m`` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_repetitions(items)
    items[:] = in_order(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Before torch 2.8 rankup refuses fsdp and pp on CPUs: what needs them is skipped (`make versions`)."""
    report: Any = yield
    old = tuple(map(int, version("torch").split(".")[:2])) < (2, 8)
    if report.failed and old and "torch-too-o" in str(report.longrepr):  # pytest shortens it
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, "Skipped: this torch is refused for the strategy on CPUs")
    return report  # type: ignore[return-value]


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k not in _IGNORED_VARIABLES | _LIBRARY_VARIABLES}


def _children() -> set[int]:
    """All processes below this one and below the servers of ``warm``, but for these."""
    found, todo = [], [os.getpid(), *_SERVERS]
    while todo:
        parent = todo.pop()
        for task in _listed(f"/proc/{parent}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{parent}/task/{task}/children") as file:  # noqa: PTH123
                children = [int(child) for child in file.read().split()]
                todo += children
                found += children
    return set(found) - _SERVERS


def _living(pids: set[int]) -> list[psutil.Process]:
    processes = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


def _settled(leaked: Callable[[], object], seconds: float = 30.0) -> bool:
    """Whether ``leaked()`` becomes empty: what is ending gets time to end, of which a busy machine needs more."""
    deadline = time.monotonic() + seconds
    while leaked():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture(scope="session")
def forkserver(warm: Path) -> None:
    """The server that ``ranks.run_ranks`` forks from: started before any test counts its children.

    It is a process of ``warm`` itself, so that torch is imported once for both.
    """
    ranks.context.set_forkserver_preload(["pytest", "hypothesis", "preload", "settled"])
    executable = spawn.get_executable()
    resource_tracker.ensure_running()
    spawn.set_executable(str(warm / "python"))
    first = ranks.context.Process(target=int)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        first.start()
    spawn.set_executable(executable)
    first.join()
    first.close()


@pytest.fixture(scope="session")
def warm() -> Iterator[Path]:
    """A folder with ``python``, ``rankup`` and ``torchrun`` that start in no time; see ``warm/client.py``.

    Each process of the test run has a server of its own, started by the first test that needs it.
    """
    _SERVERS.add(start_first_server())
    with tempfile.TemporaryDirectory(prefix="rankup-warm-") as name:
        folder = Path(name)
        write_clients(folder)
        server = start_server(folder, os.uname().nodename)
        _SERVERS.add(ready(server))
        yield folder
        end(server)


@pytest.fixture
def warm_python(warm: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """``sys.executable`` is a Python that has imported torch already, but for tests marked ``own_python``.

    For modules whose processes train. Tests of signals, of killed processes and of what a process leaves are marked,
    or in modules that do not use it: the process is not the child of the one that started it.
    """
    if request.node.get_closest_marker("own_python") is None:
        monkeypatch.setattr(sys, "executable", str(warm / "python"))


@pytest.fixture
def mount_point() -> Iterator[Path]:
    """A folder to mount something in. Not below /tmp, where a mount changes what each rehearsal beside it has to do:
    a rehearsal has a /dev of its own."""
    shared = "/dev/shm"
    with tempfile.TemporaryDirectory(
        prefix="rankup-", dir=shared if os.access(shared, os.W_OK) else None
    ) as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def no_leaks(forkserver: None) -> Iterator[None]:
    environment, threads, children = _environment(), set(threading.enumerate()), _children()
    yield
    problems = []
    after = _environment()
    if after != environment:
        changed = sorted(k for k in environment.keys() | after.keys() if environment.get(k) != after.get(k))
        problems.append(f"environment variables {changed}")
        for name in changed:
            if name in environment:
                os.environ[name] = environment[name]
            else:
                del os.environ[name]

    def new_threads() -> list[threading.Thread]:
        return [t for t in threading.enumerate() if t not in threads and t.is_alive() and not t.daemon]

    def new_children() -> list[psutil.Process]:
        return _living(_children() - children)

    if not _settled(new_threads):
        problems.append(f"threads {[t.name for t in new_threads()]}")
    if not _settled(new_children):
        problems.append(f"processes {[p.cmdline() for p in new_children()]}")
        for process in new_children():
            process.kill()
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        problems.append("a process group")
        torch.distributed.destroy_process_group()
    if problems:
        pytest.fail("the test leaked " + "; ".join(problems))
