# Loaded by every Python of a rehearsal, by PYTHONPATH: one that is called by its path, or from an activated
# environment, is handed to the stand-in of ``python``. It must work in any Python 3, so it uses nothing new.
import os
import sys


def _hand_over() -> None:
    if os.environ.get("RANKUP_REHEARSE_PASS") == str(os.getpid()) or sys.flags.isolated:
        return
    argv = getattr(sys, "orig_argv", None)
    if argv is None:
        with open("/proc/self/cmdline", "rb") as file:
            argv = [os.fsdecode(one) for one in file.read().split(b"\0")[:-1]]
    wrapper = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin", "python3")
    os.environ["RANKUP_REHEARSE_PYTHON"] = sys.executable
    os.execv(wrapper, ["python3"] + list(argv[1:]))


def _load_the_other() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    own = sys.modules.pop("sitecustomize", None)
    path = list(sys.path)
    sys.path[:] = [one for one in path if os.path.abspath(one or ".") != here]
    try:
        __import__("sitecustomize")
    except ImportError:
        sys.modules["sitecustomize"] = own  # type: ignore[assignment]
    sys.path[:] = path


_hand_over()
_load_the_other()
