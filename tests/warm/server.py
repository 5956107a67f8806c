"""Forks a process for each ``client.py`` that asks: an interpreter that has imported torch and rankup, and run nothing.

``python server.py SOCKET EXECUTABLE ROOM``; it ends when its standard input does. A child ends as an interpreter does:
threads are waited for, what is registered with ``atexit`` runs, the script's objects go, output is flushed. Only what
the server has imported is not taken apart object by object: that takes a second.

For ``start.py`` it forks another server: with a socket of its own, maybe in the namespaces of a host of a cluster.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import copy
import ctypes
import gc
import importlib
import importlib.metadata
import inspect
import io
import marshal
import os
import platform
import random
import resource
import runpy
import select
import signal
import socket
import sys
import threading
import types
import warnings
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import Any

# Before any import that keeps it: what a child starts as "this Python" is to be warm as well.
sys.executable = sys.argv[2]
NAMESPACES = ("ipc", "uts", "net", "pid", "mnt")
Request = dict[str, Any]


def receive(connection: socket.socket) -> tuple[Request, list[int]]:
    head, fds, _, _ = socket.recv_fds(connection, 8, 253)
    size = int.from_bytes(head, "big")
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError
        data += more
    return marshal.loads(data), fds


def serve(path: str) -> Request | None:
    """In a child: what it is to do. In the server: None, at the end."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(128)
    wake, woken = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for signum in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)  # the terminal's are for the tests
    children: dict[int, socket.socket] = {}  # by pid
    clients: dict[socket.socket, int] = {}
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([0, wake, listener, *clients], [], [])
        if 0 in ready and not os.read(0, 1):
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            return None
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 1 << 10)
            reap(children, clients)
        for client in ready:
            if client in clients:
                pid = clients[client]
                try:
                    asked = client.recv(64)
                except OSError:
                    asked = b""
                for signum in asked or [signal.SIGKILL]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signum)
                if not asked:
                    del clients[client], children[pid]
                    client.close()
        if listener in ready:
            client, _ = listener.accept()
            try:
                request, fds = receive(client)
            except (OSError, ValueError, EOFError):
                client.close()
                continue
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for ours in (listener, client, *clients):
                    ours.detach()  # closed with all that is not the client's
                if "serve" in request:
                    become_server(request, fds)
                else:
                    become(request, fds)
                return request
            for fd in fds:
                os.close(fd)
            if "serve" in request:
                client.close()
            else:
                children[pid], clients[client] = client, pid


def reap(children: dict[int, socket.socket], clients: dict[socket.socket, int]) -> None:
    """Tell the clients of processes that have ended how."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        client = children.pop(pid, None)
        if client is None:
            continue
        del clients[client]
        code = os.waitstatus_to_exitcode(status)
        with contextlib.suppress(OSError):
            client.sendall(bytes([0, code] if code >= 0 else [1, -code]))
        client.close()


def become_server(request: Request, fds: list[int]) -> None:
    """Another server: its life, its output and its errors are ``fds``."""
    place(fds, [0, 1, 2])
    os.nice(request["nice"])
    if request["like"]:
        libc = ctypes.CDLL(None, use_errno=True)
        opened = [os.open(f"/proc/{request['like']}/ns/{name}", os.O_RDONLY) for name in NAMESPACES]
        for fd in opened:
            if libc.setns(fd, 0):
                raise OSError(ctypes.get_errno(), "setns")
            os.close(fd)
        pid = os.fork()  # the namespace of process ids is the child's
        if pid:
            os.write(1, f"{pid}\n".encode())
            os._exit(0)
    else:
        os.write(1, f"{os.getpid()}\n".encode())
    os.chdir("/")
    platform._uname_cache = None  # type: ignore[attr-defined]  # the host has another name
    was, now = sys.executable, request["executable"]
    for module, name in _KEEP_EXECUTABLE:
        kept = getattr(module, name)
        setattr(module, name, os.fsencode(now) if isinstance(kept, bytes) else now)
    assert sys.executable != was


def keeping(executable: str) -> list[tuple[types.ModuleType, str]]:
    """Where imported modules keep the name of this Python."""
    names = (executable, os.fsencode(executable))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a deprecated name that is looked at
        return [
            (module, name)
            for module in list(sys.modules.values())
            for name, value in list(vars(module).items())
            if isinstance(value, str | bytes) and value in names
        ]


def become(request: Request, fds: list[int]) -> None:
    """The process that the client would have been."""
    os.setsid()
    place(fds, request["fds"])
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    for limit, value in request["limits"].items():
        if resource.getrlimit(limit) != value:
            resource.setrlimit(limit, value)
    if os.sched_getaffinity(0) != set(request["affinity"]):
        os.sched_setaffinity(0, request["affinity"])
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(signum, signal.SIG_DFL)
    for signum in request["ignored"]:
        signal.signal(signum, signal.SIG_IGN)
    if signal.SIGINT not in request["ignored"]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.SIGPIPE not in request["ignored"]:
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as every Python does
    os.environ.clear()
    os.environb.update(request["env"])
    show(48, [request["executable"].encode(), *map(os.fsencode, request["original"][1:])])
    show(50, [name + b"=" + value for name, value in request["env"].items()])
    client, me = request["pid"], os.getpid()
    parent = os.getppid
    os.getppid = lambda: parent_of(client) if os.getpid() == me else parent()
    random.seed()
    importlib.import_module("numpy").random.seed()


def place(fds: list[int], numbers: list[int]) -> None:
    """Each open file under the number that it had in the client, and no other one open."""
    beyond = max([*numbers, *fds, 2]) + 1
    for count, fd in enumerate(fds):
        os.dup2(fd, beyond + count)
    for count, number in enumerate(numbers):
        os.dup2(beyond + count, number)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) not in numbers:
            with contextlib.suppress(OSError):  # that of the folder itself is closed by now
                os.close(int(name))


def show(field: int, words: list[bytes]) -> None:
    """In /proc/PID/cmdline or /proc/PID/environ, which are memory of the process from the field of /proc/PID/stat on up
    to the next one. The server was started with some words too many, to have room there."""
    stat = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()
    start, end = int(stat[field - 3]), int(stat[field - 2])
    text = b"".join(word + b"\0" for word in words)[: end - start - 1]
    ctypes.memmove(start, text + bytes(end - start - len(text)), end - start)


def parent_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 1


def run(request: Request) -> None:
    """As ``python`` runs a file, a module or a line, and then ends; the traceback of an error begins there."""
    kind, what, arguments, unbuffered = request["called"]
    unbuffered = unbuffered or bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = stream(0, unbuffered)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = stream(1, unbuffered)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = stream(2, unbuffered)  # type: ignore[misc]
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.orig_argv = request["original"]
    first = {"m": os.getcwd(), "c": "", "file": os.path.dirname(os.path.realpath(what))}[kind]  # noqa: PTH109, PTH120
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [first, *map(os.path.abspath, given), *sys.path]
    importlib.invalidate_caches()
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    torch_settings(given)
    if any(os.path.isfile(f"{path}/sitecustomize.py") for path in given):  # noqa: PTH113
        sys.meta_path.insert(0, ImportedBefore(sys.modules.pop("torch")))
        sys.modules.pop("sitecustomize", None)
        importlib.import_module("sitecustomize")
    code = 0
    try:
        if kind == "m":
            for name in (what, f"{what}.__main__"):
                if not hasattr(sys.modules.get(name), "__path__"):
                    sys.modules.pop(name, None)  # runpy would warn of it
            sys.argv[:] = [request["argv0"] or "-m", *arguments]
            runpy._run_module_as_main(what, alter_argv=not request["argv0"])  # type: ignore[attr-defined]
        elif kind == "c":
            sys.argv[:] = ["-c", *arguments]
            main.__loader__ = importlib.machinery.BuiltinImporter  # type: ignore[assignment]
            exec(compile(what, "<string>", "exec"), main.__dict__)
        else:
            sys.argv[:] = [what, *arguments]
            path = os.path.abspath(what)  # noqa: PTH100
            try:
                with open(what, "rb") as file:  # noqa: PTH123
                    text = file.read()
            except OSError as error:
                said = f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}"
                print(f"{sys.executable}: {said}", file=sys.stderr)
                raise SystemExit(2) from None
            main.__file__ = path
            main.__dict__["__cached__"] = None
            main.__loader__ = SourceFileLoader("__main__", path)
            exec(compile(text, path, "exec"), main.__dict__)
    except SystemExit as leaving:
        code = exit_code(leaving)
    except BaseException as error:
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        sys.excepthook(type(error), error, error.__traceback__)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    end(code, main)


class ImportedBefore:
    """Finds a module that was imported long ago: who waits for its import, as a sitecustomize does, sees it now."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != self._module.__name__:
            return None
        # Each time another loader, which whoever asks may change.
        return ModuleSpec(name, copy.copy(self), is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return self._module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._spec


def exit_code(leaving: SystemExit) -> int:
    if leaving.code is None or isinstance(leaving.code, int):
        return (leaving.code or 0) & 0xFF
    print(leaving.code, file=sys.stderr)
    return 1


def end(code: int, main: types.ModuleType) -> None:
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for file in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):  # there is none, or it is closed
            file.flush()
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208
        # A thread of gloo may still need the interpreter to let go of the last tensors: torch waits for it for ever
        # where a destructor joins it.
        importlib.import_module("rankup.runtime.distributed.shutdown").settle()
    main.__dict__.clear()
    gc.collect()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def torch_settings(added: list[str]) -> None:
    """What torch takes from the environment at its import, which was long ago."""
    import torch

    if threads := os.environ.get("OMP_NUM_THREADS", ""):
        with contextlib.suppress(ValueError):
            torch.set_num_threads(int(threads))
    elif os.sched_getaffinity(0) != _AFFINITY:
        torch.set_num_threads(len(os.sched_getaffinity(0)))
    if added:
        for distribution in importlib.metadata.distributions(path=added):
            for entry in distribution.entry_points:
                if entry.group == "torch.backends":
                    entry.load()()


def stream(fd: int, unbuffered: bool) -> Any:
    """As the interpreter makes standard input, output and error."""
    try:
        os.fstat(fd)
    except OSError:
        return None
    if fd == 0:
        raw: Any = io.BufferedReader(io.FileIO(0, "r", closefd=False))
        return named(io.TextIOWrapper(raw, encoding="utf-8", errors="strict"), "<stdin>", "r")
    raw = io.FileIO(fd, "w", closefd=False)
    raw.name = "<stdout>" if fd == 1 else "<stderr>"
    text = io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),
        encoding="utf-8",
        errors="strict" if fd == 1 else "backslashreplace",
        newline="\n",
        line_buffering=fd == 2 or os.isatty(fd),
        write_through=unbuffered,
    )
    return named(text, raw.name, "w")


def named(text: Any, name: str, mode: str) -> Any:
    text.mode = mode
    with contextlib.suppress(AttributeError):
        text.buffer.raw.name = name
    return text


_AFFINITY = os.sched_getaffinity(0)
sys.path[0] = os.path.dirname(sys.path[0])  # noqa: PTH120
importlib.import_module("preload")
# Each step of torchrun's rendezvous looks up the module of each frame, first of all by the files of all modules, and
# again if none has it: half a second for each agent.
inspect.getmodule(compile("", "nowhere", "exec"))
inspect.modulesbyfile.update({__file__: "__main__", "<frozen runpy>": "runpy"})  # type: ignore[attr-defined]
importlib.import_module("settled")
del sys.modules["settled"]  # the fork server of ``ranks`` imports it again, after more
del sys.path[0]
assert len(os.listdir("/proc/self/task")) == 1, "a server with threads cannot fork"  # noqa: PTH208
_KEEP_EXECUTABLE = keeping(sys.executable)
_path = sys.argv[1]
while True:
    _request = serve(_path)
    if _request is None:
        os._exit(0)
    if "serve" not in _request:
        run(_request)
    _path = _request["serve"]
