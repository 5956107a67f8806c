"""Examples for each command's page of help: (command line, what it does). Tests parse each of them."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "run": (
        ("rankup run train.py --lr 0.1", "one process per GPU of this machine (one process without a GPU)"),
        ("rankup run --nproc-per-node 2 train.py", "two processes, also on CPUs"),
        ("rankup run --resume bert", "resume the last run named bert from its newest snapshot"),
        (
            "rankup run --nnodes 2 --node-rank 0 --rdzv-endpoint 10.0.0.1:29400 train.py",
            "two machines without a scheduler: this on the first, --node-rank 1 on the second",
        ),
    ),
    "train": (
        ("rankup train mnist-cnn", "the built-in digits, no download"),
        ("rankup train mnist-cnn --nproc-per-node 2 --strategy ddp --epochs 3", "two processes with DDP"),
        (
            "rankup train wideresnet-cifar100 --data cifar100 --precision bf16 --target-accuracy 0.75",
            "mixed precision, stop at 75 % test accuracy",
        ),
        ("rankup train mypackage.models:Segmentation --set depth=18", "a workload of your own"),
    ),
    "submit": (
        (
            "rankup submit --nodes 2 --gpus-per-node 4 --time 24h train.py --lr 0.1",
            "two nodes with four GPUs each",
        ),
        ("rankup submit --dry-run --site olivia train.py", "print the script and the sbatch or qsub command"),
        ("rankup submit --time 4h --max-requeues 5 --follow job.toml", "a job file, and follow its log"),
        ("rankup submit --interactive --gpus-per-node 1 --time 1h", "a shell on one GPU"),
    ),
    "render": (
        ("rankup render --site slurm --nodes 2 --gpus-per-node 4 train.py > job.sh", "a script for sbatch"),
        ("rankup render --explain-config --site olivia train.py", "where each value comes from"),
    ),
    "rehearse": (
        ("rankup rehearse job.sh", "the sizes that its directives name"),
        (
            "rankup rehearse --nodes 2 --gpus-per-node 4 job.sh config.yaml",
            "other sizes; arguments of the script",
        ),
        (
            "rankup rehearse --slurm-version 22.05 --hosts 'gpu[01-02]' job.sh",
            "as that SLURM, with these nodes",
        ),
        (
            "rankup rehearse --for-real --time-limit 120 job.sh",
            "also train, on CPUs with gloo, for two minutes",
        ),
    ),
    "check": (
        ("rankup check job.sh", "a job script, and the Python program that it starts"),
        ("rankup check --diff scripts/ src/", "all scripts below two folders; show what can be fixed"),
        ("rankup check --format sarif . > findings.sarif", "for a code scanner"),
        ("rankup check docs/tutorial.md", "the code of a tutorial"),
    ),
    "rules": (
        ("rankup rules", "all rules"),
        ("rankup rules RK101", "what a rule finds, why, and what to do"),
    ),
    "status": (
        ("rankup status", "all runs that wait or run, and the last ten that ended"),
        ("rankup status bert", "the latest run named bert in detail"),
        ("rankup status 4711 --json", "a job by its id, for a program"),
    ),
    "top": (
        ("rankup top", "the latest run, live"),
        ("rankup top --sort step bert", "the latest run named bert, its slowest ranks first"),
        ("rankup top --once --json 4711", "one moment of a job, for a program"),
    ),
    "logs": (
        ("rankup logs", "the log of the latest run"),
        ("rankup logs -f bert", "follow a run to its end, over requeues"),
        ("rankup logs --rank 3 -n 50 4711", "the last 50 lines of rank 3 of job 4711"),
    ),
    "explain": (
        ("rankup explain", "the latest run"),
        ("rankup explain slurm-4711.out", "the log of any job, of rankup or not"),
        ("rankup explain logs/rank-*.err torchrun.log --json", "several files of one job, for a program"),
    ),
    "cancel": (
        ("rankup cancel bert", "the latest run named bert, at once"),
        ("rankup cancel --save 4711", "save a snapshot first"),
        ("rankup cancel --all", "all runs that wait or run"),
    ),
    "resume": (
        ("rankup resume bert", "submit the latest run named bert again"),
        ("rankup resume --nodes 4 --time 12h 4711", "on more nodes"),
    ),
    "snapshots": (
        ("rankup snapshots ls bert", "the snapshots of the latest run named bert"),
        ("rankup snapshots export bert model.safetensors", "its newest model as a plain file"),
    ),
    "snapshots ls": (("rankup snapshots ls runs/bert/20260301-101500-a1b2", "one run directory"),),
    "snapshots verify": (("rankup snapshots verify bert", "check every file of every snapshot"),),
    "snapshots diff": (("rankup snapshots diff bert other-bert", "the newest snapshots of two runs"),),
    "snapshots export": (
        ("rankup snapshots export bert model.safetensors", "the model of the newest snapshot"),
        ("rankup snapshots export --part ema bert ema.safetensors", "another part of the state"),
    ),
    "verify": (
        ("rankup verify --quick train.py", "in two epochs of three steps: a few starts"),
        ("rankup verify train.py --epochs 3", "kill and resume a script, compare every step"),
        ("rankup verify --steps 20 --kills 2 mnist-cnn --precision fp64", "a built-in workload, quickly"),
        ("rankup verify --world 1,2 train.py", "also resume on another number of processes"),
    ),
    "drill": (
        ("rankup drill job.sh", "all failures, each on a copy of the job"),
        ("rankup drill --failures preempted,rank-killed --yes job.sh", "two of them, without asking"),
        (
            "rankup drill --here job.sh",
            "no queue: a SLURM or PBS comes up on this machine, or a pretended one",
        ),
        ("rankup drill --again 'rankup resume train' job.sh", "a job that is started again in another way"),
    ),
    "check-results": (
        ("rankup check-results tutorial.md", "the table of a page, and the speed-ups in its text"),
        (
            "rankup check-results runs/mnist-cnn/scale-20260301-101500-a1b2/results.json",
            "a study of one's own",
        ),
    ),
    "scale": (
        ("rankup scale mnist-cnn --nproc-per-node 1,2 --epochs 2", "one process against two"),
        (
            "rankup scale resnet50-mnist --grid gpus=1,2,4 precision=fp32,bf16 --repeats 5",
            "a grid; five repeats give intervals",
        ),
        (
            "rankup scale mnist-cnn --grid nodes=1,2 nproc=1,2 --site slurm --time 10m",
            "as jobs, at most four at once",
        ),
        ("rankup scale --resume runs/scale-mnist-cnn/20260301-101500-a1b2", "go on after Ctrl-C or a logout"),
        (
            "rankup scale --grid nproc=1,2 --metric 'Training time = ([0-9.]+)' train.py --lr 0.1",
            "any script, by what it prints",
        ),
        ("rankup scale study.toml", "a study from a file"),
    ),
    "report": (
        (
            "rankup report runs/mnist-cnn/scale-20260301-101500",
            "a study: report/report.html in its directory",
        ),
        ("rankup report bert", "the latest run named bert"),
        ("rankup report --out compare runs/bert/*", "all runs of a name, side by side"),
    ),
    "predict": (
        ("rankup predict runs/mnist-cnn/scale-1 --to 4x8", "from a study: 4 nodes with 8 devices each"),
        (
            'rankup predict --points "1:348.6 4:1226 8:2633 16:5115" --gpus-per-node 8 --to 32',
            "from samples/s on 1, 4, 8 and 16 GPUs",
        ),
        (
            "rankup predict curve.csv --gpus-per-node 4 --to 16,32 --samples 115e6 --deadline 24h",
            "the smallest size that is in time, and the cheapest",
        ),
        (
            "rankup predict curve.csv --gpus-per-node 4 --to 64 --node-mtbf 20000 --save-seconds 30",
            "also how often to save on nodes that fail now and then",
        ),
    ),
    "doctor": (
        ("rankup doctor", "this machine, or in an allocation all of its nodes"),
        (
            "srun --ntasks-per-node 4 --gpus-per-node 4 rankup doctor",
            "the cores and GPUs of each task as well",
        ),
        (
            "rankup doctor --dir /scratch/me --out healthy.json train.py",
            "another shared directory; keep the facts",
        ),
    ),
    "sites": (
        ("rankup sites list", "all profiles"),
        ("rankup sites new mycluster", "write a profile of this cluster"),
    ),
    "sites list": (("rankup sites list", "all profiles, built in and yours"),),
    "sites show": (("rankup sites show olivia", "a profile with its comments"),),
    "sites check": (("rankup sites check .rankup/sites/mycluster.toml", "one file"),),
    "sites new": (("rankup sites new --to ~/.config/rankup/sites mycluster", "for all your projects"),),
    "env": (("rankup env create --site olivia --requirements requirements.txt", "an environment for jobs"),),
    "env create": (
        ("rankup env create --requirements requirements.txt", "for this machine's cluster"),
        ("rankup env create --site olivia --cuda 12.6 --dry-run", "print the script, build nothing"),
        ("rankup env create --torch 'torch==2.6 torchvision' --name vision", "a chosen build of torch"),
    ),
    "data": (("rankup data fetch mnist", "on a login node, before the job"),),
    "data list": (("rankup data list", "what is known, and what is on this machine"),),
    "data fetch": (
        ("rankup data fetch cifar100", "to the place where --data cifar100 finds it"),
        ("rankup data fetch mnist /project/data/mnist", "to a directory that all nodes see"),
    ),
    "world": (
        ("rankup world", "this process"),
        ("srun --ntasks-per-node 4 rankup world", "every rank of a job step"),
        ("torchrun --nproc-per-node 2 -m rankup world --json", "one JSON line per rank"),
    ),
    "completion": (
        (
            "rankup completion bash > ~/.local/share/bash-completion/completions/rankup",
            "bash (create the directory first)",
        ),
        ("rankup completion zsh > ~/.zfunc/_rankup", "zsh, with `fpath+=~/.zfunc` before compinit"),
        ("rankup completion fish > ~/.config/fish/completions/rankup.fish", "fish"),
    ),
}
