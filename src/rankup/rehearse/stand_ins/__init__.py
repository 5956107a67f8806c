"""Stand-ins for a cluster's commands. Each runs as a process of its own, with the standard library alone.

| module | what |
|---|---|
| ``main`` | command → stand-in; the wrappers that stand on PATH |
| ``context`` | what a stand-in knows of its place: host, scenario, log |
| ``on_host`` | runs a command as a process of another host |
| ``holding`` | a step that trains keeps its nodes until the script is quiet |
| ``srun`` | srun |
| ``mpirun`` | mpirun, mpiexec |
| ``remote`` | pbsdsh, pbs_tmrsh, ssh, pdsh |
| ``tasks`` | starts tasks on hosts, and waits for them |
| ``containers`` | apptainer, docker, … |
| ``answers`` | scontrol, qstat, hostname, module, wget: a row for each |
| ``files`` | cp, rm and other commands that change files |
| ``python`` | python, torchrun and their like: recorded, or run if they are helpers |
"""
