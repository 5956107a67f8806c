"""Floor 3: the three-line library. ``rankup.init()`` gives a ``Run``; everything a training loop needs hangs on it.

| file | what |
|---|---|
| ``run.py`` | ``init`` and ``Run``: the public face |
| ``device.py``, ``group.py``, ``precision.py``, ``seed.py`` | what ``init`` decides once |
| ``shard.py``, ``data.py``, ``loaders.py``, ``stream.py`` | which samples, in which order, on which rank |
| ``steps.py`` | epochs and steps: position, weights, micro-batches |
| ``reduce.py``, ``buffers.py``, ``sections.py``, ``stop.py`` | what ranks agree on |
"""
