"""``rankup doctor``: a preflight that names the one broken thing before a rendezvous times out.

One agent per node gathers facts and prints them on the node launcher's own output, before any process group exists; so
a broken network is reported and not suffered. Pure judges turn the facts of all nodes and ranks into findings.

| module | what |
|---|---|
| ``plan`` | what every agent is told: hosts, token, folder, deadlines |
| ``contract`` | facts as short checked lines on a stream that others write to as well |
| ``facts`` | ``Facts``: all that judges see |
| ``schedule`` | the rounds in which all nodes meet |
| ``tasks`` | the tasks of a launcher leave their facts for the agent of their node |
| ``probes`` | gather facts: plain dicts |
| ``agent`` | ``python -m rankup.doctor.agent``: all probes of one node |
| ``launch`` | starts the agents and reads their lines until the deadline |
| ``judges`` | facts of all ranks → findings |
| ``verdict`` | the findings as a verdict, a culprit, JSON, lines of text |
| ``works`` | what works, a line each |
| ``examine`` | the whole examination, alone, in an allocation, or as one of a launcher's tasks |
| ``micro`` | micro-benchmarks by themselves |
"""
