"""What processes that tests fork have imported already: torch, what an optimizer and a launcher import, all of rankup.

By name, so that a module that moves needs no line here.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil

import rankup

TORCH = (
    *("torch._dynamo", "torch.distributed.checkpoint", "torch.distributed.fsdp", "torch.distributed.run"),
    *("torch.distributed.elastic.rendezvous.c10d_rendezvous_backend", "torch.distributed.tensor.parallel"),
    *("torch.distributed.pipelining", "torch.optim.swa_utils", "torch.profiler._cupti_monitor"),
    *("torch.utils.serialization.config", "numpy.random", "multiprocessing.synchronize"),
    *("multiprocessing.queues", "encodings.idna", "torch.utils.data.datapipes"),
)

ours = [module.name for module in pkgutil.walk_packages(rankup.__path__, "rankup.")]
for name in (*TORCH, *(name for name in ours if not name.endswith("__main__"))):
    with contextlib.suppress(ImportError):  # an older torch has not all of them, and DeepSpeed may be missing
        importlib.import_module(name)
