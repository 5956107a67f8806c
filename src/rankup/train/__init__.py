"""Floor 4: the training loop of the built-in workloads, written with the public library and nothing else.

``loop.py`` is the loop, on one screen. ``python -m rankup.train OPTIONS`` is what ``rankup train`` starts on
every rank; it imports the standard library and torch alone.
"""
