"""The one failure that is not ours and is tried again."""

from __future__ import annotations

import pytest

from rankup.run.failure import ABORT_AT_EXIT

# A script that knows nothing of rankup may abort as its interpreter ends, though it destroyed its process group: gloo's
# thread lets go of the last tensors a moment later, and needs the interpreter for it. ``rankup.init()`` waits for that
# moment (``runtime/distributed/shutdown.py``); what begins with it is never tried again.
aborts_at_exit = pytest.mark.flaky(reruns=2, only_rerun=[ABORT_AT_EXIT])
