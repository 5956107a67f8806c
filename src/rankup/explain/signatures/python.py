"""Python itself. An exception without a signature is an event as well."""

from __future__ import annotations

from rankup.explain.signatures.signature import FALLOUT, ROOT, WEAK, Signature

PYTHON = (
    Signature(
        name="rankup-error",
        pattern=r"rankup\.errors\.RankupError|RankupError: ",
        level=ROOT,
        what="rankup stopped the run",
        cause=(
            "rankup found something with which the run cannot go on: a mistake that would give a wrong result, "
            "or a directory or snapshot that it cannot use"
        ),
        fix="the lines after the error say where it is, and what to do",
        example="rankup.errors.RankupError: the data set is not the same on all ranks [data-differ]",
    ),
    Signature(
        name="module-not-found",
        pattern=(
            "ModuleNotFoundError: No module named|ImportError: cannot import name"
            r"|No module named \S+$"
        ),
        level=ROOT,
        what="a Python module is missing",
        cause=(
            "another Python runs than you think (an environment that is not active in the job), "
            "the module is not installed, or its name is mistyped"
        ),
        fix=(
            "`which python` in the job; activate the environment in the job's script, or `rankup env create`"
        ),
        example="ModuleNotFoundError: No module named 'torchvison'",
        better=("conda-missing", "module-command", "path-missing"),
    ),
    Signature(
        name="python-syntax-error",
        pattern="^(SyntaxError|IndentationError|TabError): ",
        level=ROOT,
        what="the script is not valid Python",
        cause="a typing error, or a Python that is too old for the script",
        fix="`python -m py_compile train.py` shows the line; `python --version` in the job",
        example="SyntaxError: '(' was never closed",
    ),
    Signature(
        name="script-missing",
        pattern=r"can't open file '.*': \[Errno 2\]",
        level=ROOT,
        what="the script does not exist",
        cause="the job runs in another folder than you think, or the name is mistyped",
        fix=(
            "give the full path, or `cd` to the project in the job's script (PBS starts in the "
            "home directory)"
        ),
        example=(
            "/usr/bin/python3: can't open file '/home/user/project/trian.py': [Errno 2] No such "
            "file or directory"
        ),
        exits=(2,),
        better=("path-missing",),
    ),
    Signature(
        name="wrong-arguments",
        pattern=(
            r"^\S+: error: (unrecognized arguments|the following arguments are required"
            r"|argument \S+: |ambiguous option)"
        ),
        level=ROOT,
        what="the script does not take these arguments",
        cause="an option is mistyped or missing; older launchers pass --local-rank to the script",
        fix="`python train.py --help` lists them",
        example="train.py: error: unrecognized arguments: --learning-rate=0.1",
        exits=(2,),
    ),
    Signature(
        name="variable-missing",
        pattern=(
            r"KeyError: '(SLURM_\w+|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR"
            r"|MASTER_PORT|PBS_\w+|PMI_\w+|OMPI_\w+|GPUS_PER_NODE)'"
        ),
        level=ROOT,
        what="the script reads a variable that its launcher does not set",
        cause=("it was written for another launcher: SLURM_* needs srun, RANK and LOCAL_RANK need torchrun"),
        fix="start it with the launcher it was written for, or read the rank with `rankup.init()`",
        example="KeyError: 'SLURM_PROCID'",
    ),
    Signature(
        name="file-exists",
        pattern="FileExistsError",
        level=ROOT,
        what="a file or folder exists already",
        cause="several ranks make it at the same time, or an earlier run has left it",
        fix="makedirs(…, exist_ok=True); download and unpack on one rank, with a barrier after it",
        example="FileExistsError: [Errno 17] File exists: '/scratch/data/raw'",
        rules=("RK306",),
        likely=True,
    ),
    Signature(
        name="file-not-found",
        pattern="FileNotFoundError|NotADirectoryError",
        level=ROOT,
        what="a file is missing",
        cause=("the path is wrong, relative to another folder, or on a disk that this node does not have"),
        fix=(
            "give full paths on a file system that all nodes see; copy data to node-local disks on each node"
        ),
        example="FileNotFoundError: [Errno 2] No such file or directory: '/data/cifar100/train.pt'",
    ),
    Signature(
        name="save-folder-missing",
        pattern=r"Parent directory .* does not exist",
        level=ROOT,
        what="the folder that a snapshot goes to does not exist",
        cause="torch.save makes no folders, and nobody has made this one on this node",
        fix="os.makedirs(folder, exist_ok=True) before the save, on a file system that all nodes see",
        example="RuntimeError: Parent directory runs/17 does not exist.",
    ),
    Signature(
        name="recursion",
        pattern="RecursionError|Fatal Python error: Cannot recover from (the recursive )?stack overflow",
        level=ROOT,
        what="a function calls itself without end",
        cause="recursion without an end, or an object that refers to itself",
        fix="the quoted lines show the function",
        example="RecursionError: maximum recursion depth exceeded",
    ),
    Signature(
        name="network-fetch",
        pattern=(
            "(?:(?<!Rendezvous)ConnectionError|ConnectTimeout|MaxRetryError|URLError|LocalEntryNotFoundError"
            "|OSError: We couldn't connect to)"
        ),
        level=ROOT,
        what="a download or a service on the internet failed",
        cause="nodes of a cluster often have no access to the internet",
        fix=(
            "download before the job on a login node (`rankup data fetch`), and use the local path "
            "(HF_HUB_OFFLINE=1)"
        ),
        example=(
            "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', "
            "port=443): Max retries exceeded with url: /gpt2"
        ),
        rules=("RK306",),
        likely=True,
    ),
    Signature(
        name="interrupted",
        pattern="KeyboardInterrupt",
        level=WEAK,
        what="the program was interrupted (Ctrl-C or SIGINT)",
        cause="a user or the launcher sent SIGINT",
        fix="look for an earlier error of another rank",
        example="KeyboardInterrupt",
        likely=True,
        exits=(-2, 130),
    ),
    Signature(
        name="helper-lost",
        pattern=r"^(EOFError|BrokenPipeError.*|ConnectionResetError.*)\n@ .*multiprocessing",
        level=FALLOUT,
        what="a helper process had ended",
        cause="another process of this rank (a loader's worker, a manager) had failed or was ended",
        fix="look for its own error above",
        example="EOFError\n@ /usr/lib/python3.11/multiprocessing/connection.py",
    ),
)
