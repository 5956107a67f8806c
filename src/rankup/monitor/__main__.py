"""``python -m rankup.monitor RUN_DIR [PARENT]``: samples this node until the process PARENT ends, or the run.

PARENT is the id of the process that starts this one; without it, it is whichever that was.
"""

import os
import sys

try:
    from rankup.monitor.sampler import sample
except ImportError as error:
    sys.exit(f"rankup.monitor requires psutil: {error}")

try:
    folder, parent = sys.argv[1], int(sys.argv[2]) if sys.argv[2:] else os.getppid()
except (IndexError, ValueError):
    sys.exit("usage: python -m rankup.monitor RUN_DIR [PARENT]")
sample(folder, parent)
