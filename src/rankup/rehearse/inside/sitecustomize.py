# Loaded by every Python of a rehearsal, by PYTHONPATH: one that is called by its path, or from an activated
# environment, is handed to the stand-in of ``python``. It must work in any Python 3, so it uses nothing new.
# mypy: ignore-errors
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


class _Gloo:
    """With --for-real: after the import of torch.distributed, groups that ask for NCCL get gloo."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch.distributed":
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                _replace(module)

            spec.loader.exec_module = exec_module
        return spec


def _replace(distributed):
    def without_nccl(function):
        def call(*args, **kwargs):
            kwargs.pop("device_id", None)
            args = tuple("gloo" if isinstance(one, str) and "nccl" in one.lower() else one for one in args)
            if "nccl" in str(kwargs.get("backend", "")).lower():
                kwargs["backend"] = "gloo"
            return function(*args, **kwargs)

        return call

    for name in ("init_process_group", "new_group"):
        if hasattr(distributed, name):
            setattr(distributed, name, without_nccl(getattr(distributed, name)))


_hand_over()
if "RANKUP_REHEARSE_GLOO" in os.environ:
    sys.meta_path.insert(0, _Gloo())
_load_the_other()
