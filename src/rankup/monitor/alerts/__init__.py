"""What is wrong with a run that goes on, from its records over time. No I/O, no clock: the caller says what time it is.

| module | what |
|---|---|
| ``alert`` | ``Symptom``: what is seen now; ``Alert``: what has lasted, and its cost; limits in ``limits.toml`` |
| ``standstill`` | no step for long, and which rank the others wait for |
| ``slow_ranks`` | loaders that are too slow, and stragglers: slow ranks, told from those that wait for them |
| ``idle_gpus`` | GPUs that compute nothing, and GPUs without a rank |
| ``room`` | memory close to its limit, a disk that will be full soon |
| ``watch`` | asks all of these every few seconds, and debounces what they see |
"""
