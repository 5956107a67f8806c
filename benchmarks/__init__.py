"""Ratios, measured side by side in one run: ``python -m benchmarks [NAME …] [--quick]``.

| file | what |
|---|---|
| ``steps.py`` | the cost of a step without its arithmetic: plain loops and DDP, rankup, Fabric, Accelerate, Lightning |
| ``records.py`` | what records and ``run.log`` cost of a step |
| ``loader.py`` | samples per second of eight ways to read the same images |
| ``mnist.py`` | the MNIST network: the textbook's script and rankup |
| ``startup.py`` | how long ``rankup --help`` takes |
| ``scaling.py`` | two processes of one thread and one process |
| ``trainer.py`` | ``rankup train`` and a plain DDP loop |
| ``snapshots.py`` | saving and loading a state of 160 MB |
| ``resume.py`` | the weights after a resume in the middle of an epoch |
| ``throughput.py`` | images per second on one GPU |
| ``prediction.py`` | published scaling curves, predicted |
| ``scale_out.py`` | a rank among ten thousand, and failures there; ``scale_out_page.py`` writes its tables |
| ``one_of_many.py``, ``pretended_ranks.py`` | one process as one rank of many, and those that answer it |
| ``many_ranks.py``, ``noting_training.py`` | real ranks, one of which is killed, and the training that they run |
| ``contest.py`` | rounds that alternate between contenders, medians, ratios and their spread |
| ``two_ranks.py`` | a contender of two processes |
| ``contender.py``, ``worker.py`` | a contender in a process of its own: the side that asks and the side that answers |
| ``report.py``, ``machine.py`` | the table, the JSON and ``results/README.md``; the facts about the machine |

Nothing here asserts: each value is printed with its target, met or missed.
"""
