"""The tables of signatures as a set."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rankup.check.registry import all_rules
from rankup.core.toml_file import read_toml
from rankup.explain.signatures.match import SIGNATURES, signature_of, suspicious
from rankup.explain.signatures.signature import Level
from rankup.explain.signatures.tables import signature_of_table

BY_NAME = {signature.name: signature for signature in SIGNATURES}


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.name)
def test_the_example_matches_its_own_signature_and_no_other_that_explains_more(signature):
    assert signature.regex.search(signature.example)
    assert suspicious(signature.example)
    found = signature_of(signature.example)
    assert found is (None if signature.level is Level.NOISE else signature)


def test_texts_are_complete():
    for signature in SIGNATURES:
        for text in (signature.what, signature.cause, signature.fix):
            assert text and not text.endswith(".") and "  " not in text, signature.name


def test_rules_and_better_signatures_exist():
    rules = {f"{rule.code} {rule.name}" for rule in all_rules()}
    for signature in SIGNATURES:
        assert set(signature.rules) <= rules and set(signature.better) <= set(BY_NAME), signature.name


def test_a_rule_is_named_only_where_check_could_have_found_the_cause():
    other = (
        "state-dict-mismatch",
        "ddp-unused-parameters",
        "no-kernel-image",
        "illegal-instruction",
        "not-available",
    )
    assert [name for name in other if BY_NAME[name].rules] == []


def test_names_are_unique():
    assert [name for name, n in Counter(s.name for s in SIGNATURES).items() if n > 1] == []


# The table of the design: (a line, what it is taken for).
LINES = [
    ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", "agents-missing"),
    (
        "torch.distributed.DistNetworkError: The client socket has timed out after 300000ms while trying to connect to (a, 1).",
        "endpoint-unreachable",
    ),
    ("RuntimeError: The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).", "port-in-use"),
    ("RuntimeError: CUDA error: invalid device ordinal", "invalid-device"),
    ("ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 50000", "duplicate-gpu"),
    ("RuntimeError: Gloo connectFullMesh failed with [x/pair.cc:144] no error, remote=[127.0.0.1]:1", "gloo-loopback"),
    ("RuntimeError: [enforce fail] ifa != nullptr. Unable to find address for: ib0", "unknown-interface"),
    ("node01:12:12 [0] NCCL INFO Using network Socket", None),
    ("umount: /scratch: device is busy.", None),
    ("  4711 gpu train alice PD 0:00 2 (QOSMaxJobsPerUserLimit)", None),
    ("node01:12:12 [0] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)", None),
    ("RuntimeError: NCCL error in: x.cpp:1, unhandled system error, NCCL version 2.21.5", "nccl-system-error"),
    ("RuntimeError: Connection closed by remote peer", "peer-closed-connection"),
    ("[Rank 1]: NCCL communicator was aborted on rank 1.", "nccl-remote-error"),
    ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "cuda-out-of-memory"),
    ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=14604003.0 cgroup. Some of your processes", "oom-kill"),
    ("srun: error: o0616: task 0: Out Of Memory", "oom-kill"),
    ("Killed", "killed-by-sigkill"),
    ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "no-kernel-image"),
    ("bash: ./train: cannot execute binary file: Exec format error", "exec-format"),
    ("RuntimeError: Dataset not found or corrupted. You can use download=True to download it", "dataset-corrupt"),
    ("RuntimeError: storage has wrong byte size: expected 4 got 8", "corrupt-file"),
    ("RuntimeError: Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 1", "cuda-snapshot"),
    ("srun: fatal: cpus-per-task set by two different environment variables", "cpus-twice"),
    ("sbatch: error: --gpus-per-task used without either --gpus or -n/--ntasks is not allowed.", "gpus-per-task-alone"),
    ("slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***", "time-limit"),
    ("NVRM: Xid (PCI:0000:65:00): 94, pid=1, Contained ECC error.", "gpu-hardware"),
    ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "gpu-hardware"),
    ("RuntimeError: DataLoader worker (pid 3) is killed by signal: Bus error. It is possible that dataloader's workers "
     "are out of shared memory.", "shared-memory"),
    ("Warning: destroy_process_group() was not called before program exit", None),
    ("RuntimeError: Expected all tensors to be on the same device, but found cuda:0 and cpu!", "mixed-devices"),
    ("sbatch: error: Batch job submission failed: Requested node configuration is not available", "not-available"),
    ("ImportError: /scratch/lib/libtorch_cpu.so: file too short", "library-missing"),
    ("OSError: /apps/lib/libmkl_rt.so.2: invalid ELF header", "library-missing"),
    ("sbatch: error: Invalid generic resource (gres) specification", "invalid-gres"),
]  # fmt: skip


def test_lines_that_people_meet():
    found = {line: signature_of(line) for line, _ in LINES}
    assert {line: one.name if one else None for line, one in found.items()} == dict(LINES)


def test_each_line_of_the_file_is_taken_for_its_signature():
    table = read_toml(Path(__file__).with_name("lines.toml"), "table")
    wrong = {line: found.name if found else None for name, lines in table.items() for line in lines
             if (found := signature_of(line)) is None or found.name != name}  # fmt: skip
    assert wrong == {}


ORDINARY = [
    "epoch 3 step 100: loss 0.25, 0 errors, time 3.2 s",
    "wandb: Run history: loss",
    "INFO: killed time with a warm-up of 3 steps",
    "Saving checkpoint (no errors)",
    "step 3: grad norm exceeded 1.0, clipped",
    "2026-01-01 10:00:00 INFO resetting connection pool",
    "Missing keys: none. Unexpected keys: none",
    "shape of the batch: [128, 3, 32, 32], memory 12 GB",
    "waiting for the next epoch, terminated workers: 0",
    "found 3 images; attempt 1 of 3",
    "found no images in the cache, reading them",
    "Training with a world size of 8 is started, exit code 0",
    "There is an OpenFabrics device, but there are no active ports detected on it",
    "libfabric:17:1:cxi:core:cxip_gen_auth_key():29<warn> Device cxi0 failed, trying the next",
    "flash_attn seems to be not installed, plain attention is used",
    "validation requires 3 batches, the rest is already done",
    "submitting with qsub: job.sh, 3 jobs already queued",
    "Read 1024 of the expected 2048 records",
    "2026-01-01 10:00:00.1: W tensorflow/compiler/gpu/conv.cc:729] Resource exhausted: Out of memory while trying to pick",
    "numactl: binding to node 0, already done by the launcher",
    "Checkpoint 'last.pth' not found, starting from scratch",
    "INFO: config file not found, using defaults",
    "apex is not installed",
    "Please install tensorboard to get logs",
    "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 256.0",
    "pyxis: imported docker image: docker://ubuntu",
    "Unexpected keys in the state: []",
    "jobs: 3 requested and 3 written",
    "the argument was removed in v2.0 and has no effect",
    "validation: tensors have the same shape",
    "flash_attn is not installed",
    "EvalTimeout: 30",
    "NumFailed: none",
    "Solving environment: done",
    "UCX  WARN  UCP version is incompatible, required: 1.15, actual: 1.10",
    "INFO:    Creating SIF file, already cached layers are not fetched",
    "Annotation format: COCO, 80 categories, invalid boxes: 0",
    "Missing keys none, unexpected keys none; the vocabulary has 32000 samples",
    "callback 3 is not serializable and left out",
    "RuntimeWarning: Couldn't find ffmpeg or avconv",
    "Couldn't find files in the cache, reading them",
    "train: Scanning labels... 100 images, 2 empty, 0 corrupt",
    "limits: 8 GPUs requested, 8 GPUs there",
]


def test_ordinary_lines_are_nothing():
    assert [line for line in ORDINARY if signature_of(line) is not None] == []


GOOD = {"pattern": ["a", "b"], "what": "w", "cause": "c", "fix": "f", "example": "a"}


def test_a_table_becomes_a_signature():
    found = signature_of_table("name", GOOD | {"level": "weak", "exits": [-9], "rules": ["RK101 no-srun"]})
    assert found.regex.pattern == "a|b"
    assert (found.level, found.exits, found.rules) == (Level.WEAK, (-9,), ("RK101 no-srun",))


def test_what_may_be_something_else_too_is_a_probable_cause():
    found = signature_of_table("name", GOOD | {"may_be": ["c"]})
    assert found.regex.search("c") and not found.likely and found.perhaps.likely


CLEAR = [
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM Killed.",
    "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
    "OSError: [Errno 28] No space left on device",
    "Lmod has detected the following error: The following module(s) are unknown: cuda/99",
    "RuntimeError: The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
    "RuntimeError: CUDA error: invalid device ordinal",
    "PermissionError: [Errno 13] Permission denied: '/results/out.txt'",
    "NVRM: Xid (PCI:0000:65:00): 79, pid=1234, GPU has fallen off the bus.",
    "IndexError: Target 10 is out of bounds.",
]
UNCLEAR = [
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "NVRM: Xid (PCI:0000:65:00): 31, pid=1234, MMU Fault",
    "PermissionError: [Errno 13] Permission denied",
    "git@github.com: Permission denied (publickey).",
    "omegaconf.errors.ConfigAttributeError: Missing key pretty",
    "ImportError: tokenizers>=0.11.1 is required, try: pip install transformers -U",
    "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    "NotImplementedError: Cannot copy out of meta tensor; no data!",
    "SyntaxError: invalid syntax",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1048475.67 GiB",
    "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://example.org/a",
]


@pytest.mark.parametrize(("lines", "likely"), [(CLEAR, False), (UNCLEAR, True)], ids=["clear", "unclear"])
def test_a_message_that_has_one_cause_is_sure_and_one_that_has_several_is_not(lines, likely):
    assert [line for line in lines if signature_of(line).likely is not likely] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"colour": "red"},
        {"level": "very"},
        {"pattern": "a"},
        {"pattern": ["("]},
        {"exits": ["-9"]},
        {"exits": [True]},
        {"likely": "yes"},
        {"may_be": "a"},
        {"may_be": ["("]},
        {"what": 3},
    ],
)
def test_a_table_that_is_not_in_the_schema_is_refused(wrong):
    with pytest.raises(ValueError, match="name"):
        signature_of_table("name", GOOD | wrong)


def test_a_table_needs_all_texts():
    with pytest.raises(ValueError, match="fix"):
        signature_of_table("name", {key: value for key, value in GOOD.items() if key != "fix"})
