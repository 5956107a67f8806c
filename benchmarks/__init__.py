"""Ratios, measured side by side in one run: ``python -m benchmarks [NAME …] [--quick]``.

| file | what |
|---|---|
| ``steps.py`` | what a step costs beside the arithmetic: plain loops, ours, Fabric, Accelerate, Lightning |
| ``loader.py`` | samples per second from six ways to read the same images |
| ``mnist.py`` | the MNIST network: the textbook's script against ours |
| ``startup.py`` | how long ``rankup --help`` takes |
| ``scaling.py`` | two processes of one thread against one |
| ``prediction.py`` | published scaling curves, predicted |
| ``simulator.py`` | the simulated step against real gloo runs at three link speeds (root, network namespaces) |
| ``contest.py`` | rounds that alternate between contenders, medians, ratios and their spread |
| ``contender.py``, ``worker.py`` | a contender in a process of its own: the asking and the answering half |
| ``report.py``, ``machine.py`` | the table, the JSON, ``results/README.md``; what machine it was |

Nothing here asserts: a target is printed beside the value, met or missed.
"""
