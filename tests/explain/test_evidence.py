"""What is weighed: which line of a log is the cause, which only follows, and when the log does not say.

The texts are our own; the lines of errors are what the programs themselves print.
"""

from __future__ import annotations

import pytest

from rankup.explain.explain_logs import explain_logs

CASES = {
    "a class that a snapshot names and the script does not have": (
        "snapshot-class-missing",
        'Traceback (most recent call last):\n  File "test.py", line 5, in <module>\n    state = torch.load("best.pth")\n'
        '  File "/usr/lib/python3/dist-packages/torch/serialization.py", line 787, in _load\n    return unpickler.load()\n'
        "AttributeError: Can't get attribute 'Meter' on <module '__main__' from 'test.py'>\n",
    ),
    "a container that did not start because a disk is full": (
        "disk-full",
        "slurmstepd: error: pyxis: child 17 failed with error code: 1\n"
        "slurmstepd: error: pyxis: failed to import docker image\n"
        "slurmstepd: error: pyxis:     Write failed because No space left on device\n",
    ),
    "a copy between ranks that a container forbids, in a log that ends so": (
        "mpi-memory-copy",
        "step 1\n[node1:00192] Read -1, expected 10024, errno = 1\n[node1:00192] Read -1, expected 10024, errno = 1\n",
    ),
    "a limit that the script may not raise": (
        "limit-refused",
        "+ ulimit -s unlimited\n./run.sh: line 3: ulimit: stack size: cannot modify limit: Operation not permitted\n",
    ),
    "the heap of Java, which is no memory of a GPU": (
        "cpu-out-of-memory",
        'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space\n\tat java.util.Arrays.copyOf(Arrays.java:1)\n',
    ),
    "a library that cannot be imported, since another is too new": (
        "versions-differ",
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    from tool.report import main\n'
        '  File "/usr/lib/python3/dist-packages/tool/config.py", line 61, in __init__\n    self._fields()\n'
        "AttributeError: 'FieldInfo' object has no attribute 'field_info'\n",
    ),
    "a data set that is too small for its sampler": (
        "sampler-short",
        'Traceback (most recent call last):\n  File "sampler.py", line 119, in __iter__\n'
        "    assert len(indices) == self.total_size\nAssertionError\n",
    ),
    "a scalar of nn.DataParallel, which only warned": (
        "scalars-gathered",
        "parallel/_functions.py:64: UserWarning: Was asked to gather along dimension 0, but all input tensors were "
        "scalars; will instead unsqueeze and return a vector.\n"
        "RuntimeError: The size of tensor a (8) must match the size of tensor b (1024) at non-singleton dimension 1\n",
    ),
    "a lock that a file system does not know": (
        "file-locked",
        'Traceback (most recent call last):\n  File "lock.py", line 26, in lock\n'
        "    fcntl.flock(handle.fileno(), mode)\nOSError: [Errno 9] Bad file descriptor\n",
    ),
    "a rank's traceback in an error of torch.distributed.checkpoint": (
        "snapshot-incomplete",
        "Traceback (most recent call last): (RANK 0)\n"
        '  File "/usr/lib/python3/dist-packages/torch/distributed/checkpoint/state_dict_loader.py", line 250, in local\n'
        "    assert metadata is not None\nAssertionError\n",
    ),
    "a traceback behind a label of its launcher": (
        "python-exception",
        "node07: Traceback (most recent call last):\n"
        'node07:   File "train.py", line 9, in <module>\n'
        "node07:     main()\n"
        "node07: KeyError: 'lr'\n",
    ),
    "an actor of Ray that has a label": (
        "cuda-out-of-memory",
        "(Worker pid=97) [rank1]: Traceback (most recent call last):\n"
        '(Worker pid=97) [rank1]:   File "train.py", line 9, in <module>\n'
        "(Worker pid=97) [rank1]:     main()\n"
        "(Worker pid=97) [rank1]: torch.OutOfMemoryError: CUDA out of memory.\n"
        "(raylet) A worker died or was killed while executing a task by an unexpected system error.\n",
    ),
    "a thread of a loader whose other process has gone": (
        "unknown",
        "Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/multiprocessing/connection.py", line 502, in Client\n'
        "    c = SocketClient(address)\n"
        "ConnectionRefusedError: [Errno 111] Connection refused\n",
    ),
    "what may have ended an actor of Ray is not what did": (
        "unknown",
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. Potential root "
        "causes: (1) SIGKILL by OOM killer. (2) The worker is crashed due to SIGSEGV or other errors.\n",
    ),
    "a full disk below a program's own exception": (
        "disk-full",
        "Exception: 580 tasks failed\n\ntask_17/stderr\nprintenv: write error: Disk quota exceeded\n",
    ),
    "a library that TensorFlow can do without": (
        "python-exception",
        "2026-01-01 10:00:00.694351: W tensorflow/dso_loader.cc:64] Could not load dynamic library 'libcudart.so.11.0'; "
        "dlerror: libcudart.so.11.0: cannot open shared object file: No such file or directory\n"
        "KeyError: 'lr'\n",
    ),
    "an exception that hands on the trace of another process": (
        "no-kernel-image",
        "submitit.core.utils.FailedJobError: Job (task=0) failed during processing with trace:\n"
        "----------------------\n"
        "Traceback (most recent call last):\n"
        '  File "train.py", line 41, in run\n'
        "    model.cuda()\n"
        "RuntimeError: CUDA error: no kernel image is available for execution on the device\n",
    ),
    "a header that hides some frames": (
        "cuda-out-of-memory",
        "Traceback (most recent calls WITHOUT Sacred internals):\n"
        '  File "run.py", line 41, in main\n'
        "    train()\n"
        "RuntimeError: CUDA out of memory.\n",
    ),
    "a traceback behind times": (
        "cuda-out-of-memory",
        "2026-01-01T10:00:00.1Z Traceback (most recent call last):\n"
        '2026-01-01T10:00:00.2Z   File "train.py", line 9, in <module>\n'
        "2026-01-01T10:00:00.3Z     main()\n"
        "2026-01-01T10:00:00.4Z torch.OutOfMemoryError: CUDA out of memory.\n",
    ),
    "an exception of a library, without its traceback": (
        "python-exception",
        "some_library.exc.Unsupported: call_function BuiltinVariable\n",
    ),
    "a launcher's word is no cause": (
        "unknown",
        "subprocess.CalledProcessError: Command '['/usr/bin/python3', '-u', 'train.py']' returned non-zero exit status 1.\n",
    ),
    "a program that the script itself calls is a cause": (
        "python-exception",
        "Traceback (most recent call last):\n"
        '  File "train.py", line 9, in <module>\n'
        "    check()\n"
        "subprocess.CalledProcessError: Command '['nvidia-smi']' returned non-zero exit status 9.\n",
    ),
    "an excerpt that begins inside a traceback": (
        "invalid-device",
        '  File "/env/lib/python3.11/site-packages/lightning/strategies/parallel.py", line 66, in root_device\n'
        "    return self.parallel_devices[self.local_rank]\n"
        "IndexError: list index out of range\n",
    ),
    "an excerpt that has lost its indents": (
        "python-exception",
        'File "train.py", line 66, in main\nself.socket.accept()\nsocket.timeout: timed out\n',
    ),
    "quotes of a locale": (
        "library-missing",
        "ImportError: /lib64/libstdc++.so.6: version ‘GLIBCXX_3.4.29’ not found\n",
    ),
    "a file that another rank has removed": (
        "ranks-race",
        'Traceback (most recent call last):\n  File "train.py", line 66, in main\n    os.remove(signal_file)\n'
        "FileNotFoundError: [Errno 2] No such file or directory: '.signal'\n",
    ),
    "a state that an optimizer cannot use": (
        "optimizer-state-mismatch",
        'Traceback (most recent call last):\n  File "/env/site-packages/torch/optim/sgd.py", line 94, in step\n'
        "    buf.mul_(momentum)\n"
        "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 0\n",
    ),
    "frames that no exception ends are no failure of their own": (
        "corrupt-file",
        '  File "train.py", line 66, in main\n    load()\nread 3 files\nEOFError: Ran out of input\n',
    ),
    "a traceback that a post has indented below its header": (
        "not-registered",
        "Traceback (most recent call last):\n"
        '      File "train.py", line 9, in <module>\n'
        "        main()\n"
        "    KeyError: 'Net is not in the models registry'\n",
    ),
    "a trace of TorchScript, which has the error itself": (
        "no-kernel-image",
        "RuntimeError: The following operation failed in the TorchScript interpreter.\n"
        "Traceback of TorchScript (most recent call last):\n"
        "RuntimeError: nvrtc: error: invalid value for --gpu-architecture (-arch)\n",
    ),
    "an abort after a collective that timed out": (
        "nccl-watchdog",
        "[rank0]:[E826 08:53:23.1 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600036 milliseconds before timing out.\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "Aborted (core dumped)\n"
        "E0826 08:53:24.1 1 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -6) local_rank: 0\n",
    ),
    "a monitor that ends what a collective had blocked": (
        "nccl-watchdog",
        "[rank7]:[E826 09:01:23.1 ProcessGroupNCCL.cpp:1743] [Rank 7] ProcessGroupNCCL's watchdog got stuck for 480 "
        "seconds without making progress.\n"
        "[rank2]:[E826 08:53:23.1 ProcessGroupNCCL.cpp:607] [Rank 2] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600036 milliseconds before timing out.\n",
    ),
    "a version of CUDA that is accepted": (
        "build-failed",
        "Installed CUDA version 12.1 does not match the version torch was compiled with 11.8 but since the APIs are "
        "compatible, accepting this combination\n"
        "python_headers.h:12:10: fatal error: Python.h: No such file or directory\n",
    ),
    "an exit code is no cause, and no success": ("unknown", "epoch 3\nExited with exit code 1.\n"),
    "a logger's level behind its time and name": (
        "unknown",
        "2026-01-01 10:00:00,123 - my.trainer - ERROR - the thing is gone\n",
    ),
    "oom-kill below a worker that died": (
        "oom-kill",
        "RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed.\n"
        "wandb: waiting\nwandb: done\n"
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.\n",
    ),
    "oom-kill below an allocation that failed": (
        "oom-kill",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: not enough memory\n"
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.\n",
    ),
    "an unknown module before the import that fails": (
        "module-command",
        'Lmod has detected the following error: The following module(s) are unknown: "PyTorch/9.9"\n'
        "Traceback (most recent call last):\n"
        '  File "train.py", line 1, in <module>\n'
        "    import torch\n"
        "ImportError: libtorch_cpu.so: cannot open shared object file: No such file or directory\n",
    ),
    "an unknown module before another import that fails": (
        "module-command",
        'Lmod has detected the following error: The following module(s) are unknown: "SciPy/9.9"\n'
        "Traceback (most recent call last):\n"
        '  File "train.py", line 1, in <module>\n'
        "    import scipy\n"
        "ImportError: dynamic module does not define module export function (PyInit__lib)\n",
    ),
    "an unknown module before an environment that is not found": (
        "module-command",
        'Lmod has detected the following error: The following module(s) are unknown: "conda/9.9"\n'
        "./job.sh: line 3: activate: No such file or directory\n"
        "Traceback (most recent call last):\n"
        '  File "train.py", line 1, in <module>\n'
        "    import torch\n"
        "ImportError: No module named torch\n",
    ),
    "the memory of a GPU, by its driver": (
        "cuda-out-of-memory",
        "jcuda.CudaException: CUDA_ERROR_OUT_OF_MEMORY\n",
    ),
    "a warning of NCCL that is the end": (
        "nccl-interface",
        "node1:21:21 [0] bootstrap.cc:37 NCCL WARN Bootstrap : no socket interface found\n"
        "node1:21:21 [0] NCCL INFO init.cc:128 -> 3\n"
        "Traceback (most recent call last):\n"
        '  File "train.py", line 61, in main\n'
        "    dist.barrier()\n",
    ),
    "a logger's line below an exception is not of its message": (
        "python-exception",
        "AssertionError: the batch has 4 samples\n"
        "\tERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 9) of binary: p\n",
    ),
    "a shell's word of a crash": ("segmentation-fault", "OK\nSegmentation fault (core dumped)\n"),
    "/dev/shm is not the disk": (
        "shared-memory",
        "OSError: [Errno 28] No space left on device: '/dev/shm/batch-3'\n",
    ),
    "torch's own files in /dev/shm": (
        "shared-memory",
        "RuntimeError: unable to write to file </torch_17_4_0>: No space left on device (28)\n",
    ),
    "NCCL's files in /dev/shm": (
        "shared-memory",
        "node1:9:12 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device\n",
    ),
    "SIGBUS, by torchrun": (
        "shared-memory",
        "E1122 14:34:26.541000 10 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -7) "
        "local_rank: 1 (pid: 16) of binary: /usr/bin/python3\n",
    ),
    "SIGKILL, by torchrun": (
        "killed-by-sigkill",
        "E1122 14:34:26.541000 10 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) "
        "local_rank: 1 (pid: 16) of binary: /usr/bin/python3\n",
    ),
    "SIGKILL, by deepspeed": (
        "killed-by-sigkill",
        "[2026-01-01 10:00:00,000] [ERROR] [launch.py:325:sigkill_handler] ['python3', 'train.py'] exits with return "
        "code = -9\n",
    ),
    "ended from outside": ("terminated", "step 12\nstep 13\nTerminated\n"),
    "a line of c10d at the level of errors": (
        "endpoint-unreachable",
        "[E socket.cpp:1011] [c10d] The client socket has timed out after 60000ms while trying to connect to (n1, 29500).\n",
    ),
    "an unknown line of c10d at the level of errors": (
        "unknown",
        "[E Something.cpp:17] the thread has gone\n",
    ),
    "a name that getaddrinfo does not know": (
        "host-unresolvable",
        "[W socket.cpp:697] [c10d] The IPv4 network addresses of (gpu-17-3, 29500) cannot be retrieved (gai error: -2 - "
        "Name or service not known).\n",
    ),
    "an exception whose message is the traceback of another process": (
        "gpu-busy",
        "Traceback (most recent call last):\n"
        '  File "train.py", line 9, in join\n'
        "    raise Exception(text)\n"
        "Exception:\n\n"
        "-- The process below failed --\n\n"
        "Traceback (most recent call last):\n"
        '  File "train.py", line 41, in run\n'
        "    model.cuda()\n"
        "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable\n",
    ),
    "the exception of an agent, as JSON": (
        "rendezvous-connection",
        "ERROR:torch.distributed.elastic.multiprocessing.errors.error_handler:{\n"
        '  "message": {\n'
        '    "message": "RendezvousConnectionError: The connection to the C10d store has failed.",\n',
    ),
    "a warning that no GPU can be used, at the end": (
        "cuda-not-started",
        "/opt/torch/cuda/__init__.py:138: UserWarning: CUDA initialization: CUDA unknown error - this may be due to an "
        "incorrectly set up environment.\n  return torch._C._cuda_getDeviceCount() > 0\n",
    ),
    "warnings of MIOpen before its error": (
        "kernel-cache",
        "MIOpen(HIP): Warning [FindSolutions] sqlite_db.cpp:220: Internal error while accessing SQLite database: disk\n"
        "Traceback (most recent call last):\n"
        '  File "train.py", line 6, in <module>\n'
        "    y = conv(x)\n"
        "RuntimeError: miopenStatusInternalError\n",
    ),
    "sbatch that tries again and again without its configuration": (
        "slurm-not-configured",
        "sbatch: error: s_p_parse_file: unable to status file /etc/slurm/slurm.conf: No such file or directory, "
        "retrying in 1sec up to 60sec\n",
    ),
    "an interpreter with a carriage return": (
        "dos-line-ends",
        "-bash: /var/spool/pbs/mom_priv/jobs/8.SC: /bin/bash^M: bad interpreter: No such file or directory\n",
    ),
    "Moab's time limit": (
        "pbs-time-limit",
        "Job deleted at request of root@head\nMOAB_INFO:  job exceeded wallclock limit\n",
    ),
    "Torque's limit of memory": (
        "pbs-memory",
        "Aborted by PBS Server\nJob exceeded a memory resource limit (vmem, pvmem, etc.). Job was aborted\n",
    ),
    "an agent that lost the one with the store": (
        "agent-lost",
        "Traceback (most recent call last):\n"
        '  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/elastic/agent/server/api.py", line 906, in _invoke_run\n'
        "    num_nodes_waiting = rdzv_handler.num_nodes_waiting()\n"
        '  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/elastic/rendezvous/dynamic_rendezvous.py", line 1212, in num_nodes_waiting\n'
        "    self._state_holder.sync()\n"
        '  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py", line 117, in _call_store\n'
        "    raise RendezvousConnectionError(\n"
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed.\n",
    ),
    "an agent that cannot reach the store at the begin": (
        "rendezvous-connection",
        "Traceback (most recent call last):\n"
        '  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py", line 175, in _create_tcp_store\n'
        "    raise RendezvousConnectionError(\n"
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed.\n",
    ),
    "PMI-2 that is not there": ("pmi-mismatch", "PMI2_Init failed to intialize.  Return code: 14\n"),
    "PMIx of another version": (
        "pmi-mismatch",
        "[n1:17] PMIX ERROR: OUT-OF-RESOURCE in file base/bfrop_base_unpack.c at line 750\n"
        "*** An error occurred in MPI_Init\n*** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,\n",
    ),
    "MPI that does not start, with a cause in the log": (
        "pmi-mismatch",
        "*** An error occurred in MPI_Init\nThe launcher is srun, but OMPI was not built with SLURM's PMI support\n",
    ),
    "MPI that does not start, and no word more": (
        "mpi-not-started",
        "It looks like MPI runtime init failed for some reason; your parallel process is\nlikely to abort.\n",
    ),
    "an assertion of an old PyTorch": (
        "label-out-of-range",
        "ClassNLLCriterion.cu:101: block: [0,0,0], thread: [2,0,0] Assertion t >= 0 && t < n_classes failed.\n"
        "RuntimeError: cuda runtime error (59) : device-side assert triggered\n",
    ),
    "an assertion that the GPU prints after the traceback": (
        "label-out-of-range",
        "RuntimeError: CUDA error: device-side assert triggered\n\n"
        "ClassNLLCriterion.cu:108: block: [0,0,0], thread: [31,0,0] Assertion `t >= 0 && t < n_classes` failed.\n",
    ),
    "HDF5 on a file system without locks": (
        "file-locked",
        "OSError: file locking disabled on this file system (use HDF5_USE_FILE_LOCKING environment variable)\n",
    ),
    "a loss that detectron2 checks": (
        "not-a-number",
        "FloatingPointError: Loss became infinite or NaN at iteration=7!\n",
    ),
    "an unknown module, and a shell that goes on for some lines and fails": (
        "module-command",
        'Lmod has detected the following error: The following module(s) are unknown: "Tool/9.9"\n'
        'Try "module spider"\n'
        "/var/spool/slurmd/job7/slurm_script: line 9: /bin/tool: No such file or directory\n",
    ),
    "of two causes in one line the nearer one": (
        "disk-full",
        "safetensors_rust.SafetensorError: Error while serializing: IoError(No space left on device)\n",
    ),
    "a step that the controller did not answer": (
        "slurm-unreachable",
        "srun: error: Unable to confirm allocation for job 7: Unable to contact slurm controller (connect failure)\n",
    ),
    "an exit code of a shell": ("segmentation-fault", "Process finished with exit code 139\n"),
    "an exit code of a task": ("killed-by-sigkill", "srun: error: n1: task 3: Exited with exit code 137\n"),
    "a signal in words": ("shared-memory", "Command terminated by signal 7\n"),
    "an exception without its traceback": (
        "python-exception",
        "step 3\nmylab.errors.NoSuchShardError: shard 17\n",
    ),
    "a kill that PBS explains": (
        "pbs-memory",
        "job.sh: line 4:  4711 Killed                  python train.py\n"
        "=>> PBS: job killed: mem 33554944kb exceeded limit 33554432kb\n",
    ),
    "a traceback that is cut off": (
        "unknown",
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\n',
    ),
    "a traceback that is cut off, and what it followed from": (
        "corrupt-file",
        "UnpicklingError            Traceback (most recent call last)\n----> 1 torch.load(path)\n\n"
        "UnpicklingError: invalid load key, 'v'.\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "OSError                    Traceback (most recent call last)\n/env/modeling_utils.py in from_pretrained(path)\n",
    ),
    "the exception of one process and the traceback of another in one line": (
        "cpu-out-of-memory",
        'Traceback (most recent call last):\n  File "spawn.py", line 105, in spawn_main\n    load(from_parent)\n'
        'MemoryErrorTraceback (most recent call last):\n  File "spawn.py", line 105, in spawn_main\n',
    ),
    "an exception of which only the file of a package says where it belongs": (
        "trainer-arguments",
        'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    args = TrainingArguments("out")\n'
        '  File "/env/lib/python3.11/site-packages/transformers/training_args.py", line 17, in __post_init__\n'
        '    raise ValueError(\nValueError: the two settings contradict each other\n',
    ),
    "an error of the script's own that only surfaces in a file of a package": (
        "python-exception",
        'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    trainer.train()\n'
        '  File "/env/lib/python3.11/site-packages/transformers/trainer.py", line 17, in train\n'
        "    for loss in losses:\nTypeError: 'float' object is not iterable\n",
    ),
    "an excerpt of an assertion and its name alone": (
        "file-not-found",
        "    assert os.path.exists(args.config)\nAssertionError\n",
    ),
    "an exception whose name does not end in Error, alone": (
        "dtypes-differ",
        "ArrowInvalid: Can only convert 1-dimensional array values\n",
    ),
    "the line at which glog aborts": (
        "c-assertion",
        "F0118 23:24:48.788218 37264 parallel.cpp:135] Check failed: a_count == b_count (1 vs. 2)\n",
    ),
    "a rank that torchrun saw end by a division by zero": (
        "floating-point-exception",
        "Root Cause (first observed failure):\n[0]:\n  time      : 2025-07-20_21:25:13\n  host      : node1\n"
        "  rank      : 2 (local_rank: 2)\n  exitcode  : -8 (pid: 20362)\n  error_file: <N/A>\n"
        "  traceback : Signal 8 (SIGFPE) received by PID 20362\n",
    ),
    "a kill that a progress bar stands before": (
        "killed-by-sigkill",
        "  6%|###    | 3787/62565 [04:47<1:10:53, 13.82it/s]Killed\n",
    ),
    "a worker's exception before the header of its traceback, in an old torch": (
        "image-unreadable",
        "TypeError: Traceback (most recent call last):\n"
        '  File "/env/lib/python3.7/site-packages/torch/utils/data/dataloader.py", line 138, in <listcomp>\n'
        "    samples = collate_fn([dataset[i] for i in batch_indices])\n"
        '  File "/home/user/data.py", line 234, in __getitem__\n    depth = depth[:, :, None]\n'
        "TypeError: 'NoneType' object is not subscriptable\n",
    ),
    "an assertion of a kernel that a progress bar stands before": (
        "label-out-of-range",
        "       2/70      2.34G      1.254:  42% 25/60 [00:09<00:17,  2.05it/s]../aten/IndexKernel.cu:92: operator(): "
        'block: [3,0,0] Assertion `-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.\n',
    ),
    "a file of the script's own that is called like a package": (
        "python-exception",
        'Traceback (most recent call last):\n  File "/home/user/requests/send.py", line 9, in <module>\n'
        '    raise ValueError("no more of them")\nValueError: no more of them\n',
    ),
    "an exception alone, with the blanks of the post it is from": (
        "group-not-initialized",
        "  RuntimeError: Default process group has not been initialized, please make sure to call init_process_group.\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_cause_that_the_log_shows(tmp_path, name):
    code, text = CASES[name]
    (tmp_path / "job.log").write_text("starting\n" + text)
    found, _ = explain_logs([tmp_path / "job.log"])
    assert found is not None
    assert found.code == code


@pytest.mark.parametrize(
    "name", [name for name in CASES if CASES[name][0] in ("unknown", "killed-by-sigkill", "terminated")]
)
def test_what_the_log_does_not_say_is_not_sure_and_blames_no_other_rank(tmp_path, name):
    (tmp_path / "job.log").write_text(CASES[name][1])
    found, _ = explain_logs([tmp_path / "job.log"])
    assert found is not None
    assert found.confidence.value == "likely"
    assert "another rank" not in found.message


def test_a_complaint_of_conda_in_a_log_that_ends_well_is_no_failure(tmp_path):
    complaint = "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.\n"
    log = tmp_path / "job.log"
    log.write_text(complaint + "epoch 1\nepoch 2\ndone\n")
    found, notes = explain_logs([log])
    assert found is None
    assert notes == [f"earlier, and the program went on: job.log:1: {complaint.strip()}"]
    log.write_text(complaint)
    found, _ = explain_logs([log])
    assert found is not None
    assert found.code == "conda-missing"


def test_a_warning_of_nccl_is_the_cause_only_of_a_log_that_does_not_end_well(tmp_path):
    warning = "node1:8:9 [0] nccl_net_ofi_init NCCL WARN NET/OFI Only EFA provider is supported\n"
    log = tmp_path / "job.log"
    log.write_text(warning + "epoch 1\nepoch 2\ndone\n")
    assert explain_logs([log])[0] is None
    log.write_text(
        warning + "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1275, unhandled system error\n"
    )
    found, _ = explain_logs([log])
    assert found is not None
    assert (found.code, found.confidence.value) == ("nccl-ofi", "likely")


def found_in(folder, text):
    (folder / "job.log").write_text(text)
    found, _ = explain_logs([folder / "job.log"])
    return found and (found.code, found.confidence.value)


OLD_DRIVER = (
    "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11000)."
)


@pytest.mark.parametrize("end", ["", "  return torch._C._cuda_getDeviceCount() > 0\n"])
def test_a_warning_that_nothing_follows_is_the_probable_cause(tmp_path, end):
    assert found_in(tmp_path, f"loading\n{OLD_DRIVER}\n{end}") == ("no-cuda", "likely")


@pytest.mark.parametrize("end", ["epoch 1: loss 0.3\n" * 9, "training done\n"])
def test_a_warning_that_the_program_outlived_is_no_failure(tmp_path, end):
    assert found_in(tmp_path, f"loading\n{OLD_DRIVER}\n{end}") is None


SAID = "num_samples should be a positive integer value, but got num_samples=0\n"


def test_a_last_line_may_name_a_failure_without_calling_it_an_error(tmp_path):
    assert found_in(tmp_path, f"loading\n{SAID}") == ("no-samples", "likely")


@pytest.mark.parametrize("log", [SAID + "epoch 1: loss 0.3\n" * 9, SAID + "done\n", "    " + SAID])
def test_such_a_line_is_no_failure_if_more_follows_or_it_is_code(tmp_path, log):
    assert found_in(tmp_path, log) is None


def test_a_warning_is_the_probable_cause_where_a_failed_job_says_nothing_else(tmp_path):
    (tmp_path / "job.log").write_text(
        "2026-01-05 07:57:34.555804: W xla/service/platform_util.cc:199] unable to create StreamExecutor for CUDA:1: "
        "Failed call to cuDeviceGet: CUDA_ERROR_INVALID_DEVICE: invalid device ordinal\n"
        'Traceback (most recent call last):\n  File "train.py", line 879, in backends\n    backend = init()\n'
    )
    found, _ = explain_logs([tmp_path / "job.log"])
    assert found is not None
    assert (found.code, found.confidence.value) == ("invalid-device", "likely")
    assert "calls it a warning" in found.why


def test_the_last_error_of_nccl_is_quoted(tmp_path):
    (tmp_path / "job.log").write_text(
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1182, internal error, NCCL version 2.18\n"
        "ncclInternalError: Internal check failed.\nLast error:\nThe proxy thread has gone\n"
    )
    found, _ = explain_logs([tmp_path / "job.log"])
    assert found is not None
    assert found.code == "nccl-said"
    assert found.quotes[-1].text == "The proxy thread has gone"


def test_a_rank_on_its_node_is_not_called_a_rank_among_all(tmp_path):
    line = "E1122 14:34:26.5 9 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) local_rank: 1"
    (tmp_path / "job.log").write_text(line + " (pid: 16) of binary: python3\n")
    found, _ = explain_logs([tmp_path / "job.log"])
    assert found is not None
    assert found.rank is None


def test_an_abort_of_a_rank_that_had_lost_another_does_not_make_it_the_cause(tmp_path):
    (tmp_path / "job.log").write_text(
        "[rank1]: RuntimeError: [tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:44448\n"
        "E1122 14:34:26.5 9 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -6) local_rank: 1\n"
    )
    found, _ = explain_logs([tmp_path / "job.log"])
    assert found is not None
    assert found.code == "unknown"
    assert "another rank" in found.message


def test_an_assertion_without_a_message_is_told_by_its_line(tmp_path):
    (tmp_path / "job.log").write_text(
        'Traceback (most recent call last):\n  File "train.py", line 9, in save\n'
        "    assert dtype == info.dtype\nAssertionError\n"
    )
    found, _ = explain_logs([tmp_path / "job.log"])
    assert found is not None
    assert "AssertionError in `assert dtype == info.dtype`" in found.message
