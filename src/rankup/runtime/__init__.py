"""Floor 3: the three-line library. ``rankup.init()`` gives a ``Run``; everything a training loop needs hangs on it.

| file | what |
|---|---|
| ``run`` | ``init`` and ``Run``: the public face |
| ``device``, ``group``, ``meeting``, ``precision``, ``seed`` | what ``init`` decides once |
| ``shard``, ``samples``, ``data``, ``loaders``, ``stream``, ``feeds`` | which samples, when, on which rank |
| ``steps``, ``optimizer``, ``state`` | epochs and steps, what steps, and where it stands |
| ``reduce``, ``buffers``, ``sections``, ``stop`` | what ranks agree on |
| ``parting``, ``uncaught`` | how a rank leaves, and how an error is shown |
"""
