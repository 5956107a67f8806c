"""Stands in for ``python``: asks a server for a process that has imported torch already.

``start.py`` writes this file as ``python``, ``rankup`` and ``torchrun``, with a first line that starts it by
``python -I -S``. It imports nothing that is not built in, so that it starts in about 15 ms. The server's socket is
beside it, one for each host. What it hands over: its arguments, environment, folder, limits and open files. Then it
waits: it passes signals on, and ends as the other ended. What the server cannot do (an interpreter's options, variables
that are read at its start) the real Python does.
"""

import _signal
import _socket
import marshal
import posix
import sys

FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGCONT")
PROGRAMS = {"rankup": "rankup", "torchrun": "torch.distributed.run"}
# The interpreter reads these at its start, or torch at its import.
HARMLESS = ("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHON_EXEC")
AT_IMPORT = ("MKL_NUM_THREADS", "TORCH_DEVICE_BACKEND_AUTOLOAD", "TORCH_DISTRIBUTED_DEBUG", "TORCH_LOGS")


def plan(arguments):
    """How the interpreter was called: ``("m" | "c" | "file", what, arguments, unbuffered)``, or None."""
    unbuffered = False
    while arguments:
        first, *arguments = arguments
        if first == "-u":
            unbuffered = True
        elif first == "-B":
            continue  # multiprocessing says with it what the environment says
        elif first in ("-m", "-c"):
            return (first[1:], arguments[0], arguments[1:], unbuffered) if arguments else None
        else:
            return None if first.startswith("-") else ("file", first, arguments, unbuffered)
    return None


def main():
    me = sys.argv[0]
    folder, _, name = me.rpartition("/")
    if not folder.startswith("/"):
        folder = f"{posix.getcwd()}/{folder}"
    arguments = sys.argv[1:]
    program = PROGRAMS.get(name)
    if program is not None:
        arguments = ["-m", program, *arguments]
    env = dict(posix.environ)
    called = plan(arguments)
    cold = any(
        key in AT_IMPORT or (key.startswith("PYTHON") and key not in HARMLESS)
        for key in (name.decode(errors="replace") for name in env)
    )
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    if called is not None and not cold:
        try:
            connection.connect(f"{folder}/socket-{posix.uname().nodename}")
        except OSError:
            called = None
    if called is None or cold:
        connection.close()
        posix.execv(sys.executable, [sys.executable, *arguments])

    connected = connection.fileno()
    # The folder's own number is in the list as well; it is closed by now.
    fds = [int(fd) for fd in posix.listdir("/proc/self/fd")]
    fds = [fd for fd in fds if fd != connected and is_open(fd)]
    import resource

    limits = {
        getattr(resource, limit): resource.getrlimit(getattr(resource, limit))
        for limit in dir(resource)
        if limit.startswith("RLIMIT_")
    }
    umask = posix.umask(0)
    posix.umask(umask)
    signals = [getattr(_signal, name) for name in FORWARDED]
    ignored = [int(s) for s in range(1, 32) if _signal.getsignal(s) == _signal.SIG_IGN]
    request = {
        "executable": f"{folder}/python",
        "argv0": me if program is not None else "",
        "original": [me, *arguments],
        "called": called,
        "env": env,
        "cwd": posix.getcwd(),
        "umask": umask,
        "limits": limits,
        "affinity": sorted(posix.sched_getaffinity(0)),
        "ignored": ignored,
        "fds": fds,
        "pid": posix.getpid(),
    }
    data = marshal.dumps(request)
    numbers = b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds)
    connection.sendmsg([len(data).to_bytes(8, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
    connection.sendall(data)

    def forward(signum, frame):
        try:  # noqa: SIM105  # contextlib would have to be imported
            connection.send(bytes([signum]))
        except OSError:
            pass

    for signum in signals:
        if signum not in ignored:
            _signal.signal(signum, forward)
    # Only the other process reads and writes them from now on: who waits for their end waits for its end.
    for fd in fds:
        posix.close(fd)
    answer = b""
    while len(answer) < 2:
        more = connection.recv(2)
        if not more:
            posix._exit(70)  # the server is gone
        answer += more
    kind, value = answer
    if kind == 0:
        posix._exit(value)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if value not in (_signal.SIGKILL, _signal.SIGSTOP):
        _signal.signal(value, _signal.SIG_DFL)
    posix.kill(posix.getpid(), value)


def is_open(fd):
    try:
        posix.fstat(fd)
    except OSError:
        return False
    return True


main()
