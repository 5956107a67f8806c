"""A mistake put into a correct program of the corpus by a small edit is found, and was not there before."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankup.check.check import diagnostics
from rankup.check.example import subjects_of
from rankup.findings.finding import Severity

CORPUS = Path(__file__).parent / "corpus"

# Folder, file, what is replaced, by what, and the rule that has to find it.
MUTANTS = [
    (
        "prog-ddp",
        "train.py",
        'local_rank = int(os.environ["LOCAL_RANK"])',
        "local_rank = dist.get_rank()",
        "RK201",
    ),
    ("prog-srun", "train.py", 'os.environ["SLURM_LOCALID"]', 'os.environ["SLURM_PROCID"]', "RK201"),
    (
        "prog-fsdp",
        "train.py",
        "device = dist.get_rank() % torch.cuda.device_count()",
        "device = dist.get_rank()",
        "RK201",
    ),
    ("prog-srun", "train.py", 'world_size = int(os.environ["SLURM_NTASKS"])', "world_size = 8", "RK204"),
    (
        "prog-ddp",
        "train.py",
        "    dist.all_reduce(sums)\n",
        "    if dist.get_rank() == 0:\n        dist.all_reduce(sums)\n",
        "RK207",
    ),
    ("prog-ddp", "train.py", "        dist.barrier()\n", "            dist.barrier()\n", "RK207"),
    (
        "prog-class",
        "train.py",
        "            dist.broadcast_object_list",
        "            if self.is_first:\n                dist.broadcast_object_list",
        "RK207",
    ),
    (
        "prog-class",
        "train.py",
        "        if self.is_first:\n            dist.barrier()\n        return",
        "        return",
        "RK207",
    ),
    (
        "prog-accelerate",
        "train.py",
        "        accelerator.wait_for_everyone()\n",
        "        if accelerator.is_main_process:\n            accelerator.wait_for_everyone()\n",
        "RK207",
    ),
    (
        "prog-deepspeed",
        "train.py",
        "        engine.save_checkpoint(",
        "        if torch.distributed.get_rank() == 0:\n            engine.save_checkpoint(",
        "RK207",
    ),
    (
        "prog-ddp",
        "train.py",
        "        accuracy = evaluate(model.module, valid, device)\n",
        "        accuracy = evaluate(model.module, valid, device)\n"
        "        if dist.get_rank() == 0:\n            model(torch.ones(1, 3, 224, 224))\n",
        "RK208",
    ),
    (
        "prog-fsdp",
        "train.py",
        "        state = model.state_dict()\n",
        "        if is_main():\n            state = model.state_dict()\n",
        "RK210",
    ),
    (
        "prog-class",
        "train.py",
        "        return total.item() /",
        "        while total > 100:\n            total = total / 2\n        return total.item() /",
        "RK209",
    ),
    (
        "prog-ddp",
        "train.py",
        "DDP(resnet18(num_classes=100).to(device), device_ids=",
        "DDP(resnet18(num_classes=100).to(device), gpu_ids=",
        "RK214",
    ),
    ("prog-ddp", "train.py", 'init_process_group("nccl")', 'init_proces_group("nccl")', "RK217"),
    ("prog-ddp", "train.py", "        scaler.step(optimizer)\n", "        scaler.step(optimizer\n", "RK200"),
    ("prog-ddp", "train.py", "        train.sampler.set_epoch(epoch)\n", "", "RK302"),
    ("prog-srun", "train.py", "        sampler.set_epoch(epoch)\n", "", "RK302"),
    ("prog-srun", "train.py", "sampler.set_epoch(epoch)", "sampler.set_epoch(0)", "RK302"),
    ("prog-spawn", "train.py", "        sampler.set_epoch(epoch)\n", "", "RK302"),
    ("prog-class", "train.py", "            self.sampler.set_epoch(epoch)\n", "", "RK302"),
    (
        "prog-srun",
        "train.py",
        "batch_size=64, sampler=sampler",
        "batch_size=64, shuffle=True, sampler=sampler",
        "RK303",
    ),
    ("prog-ddp", "data.py", "sampler=DistributedSampler(train)", "shuffle=True", "RK301"),
    (
        "prog-class",
        "train.py",
        "        if not self.is_first:\n            dist.barrier()\n        data",
        "        data",
        "RK306",
    ),
    ("prog-spawn", "train.py", "rank=rank)\n    loader", "rank=rank, shuffle=False)\n    loader", "RK311"),
    ("prog-accelerate", "train.py", "batch_size=64, shuffle=True", "batch_size=64", "RK311"),
    (
        "prog-srun",
        "train.py",
        '    if rank == 0:\n        torch.save(model.module.state_dict(), "line.pt")',
        '    torch.save(model.module.state_dict(), "line.pt")',
        "RK401",
    ),
    (
        "prog-spawn",
        "train.py",
        '    if rank == 0:\n        torch.save(model.module.state_dict(), "digits.pt")',
        '    torch.save(model.module.state_dict(), "digits.pt")',
        "RK401",
    ),
    ("prog-ddp", "snapshots.py", ', map_location="cpu", weights_only=True', "", "RK402"),
    ("prog-class", "train.py", ', map_location=f"cuda:{self.local_rank}"', "", "RK402"),
    ("prog-class", "train.py", '"epoch": epoch + 1,', '"epoch": epoch,', "RK403"),
    ("prog-class", "train.py", '            "optimizer": self.optimizer.state_dict(),\n', "", "RK404"),
    (
        "prog-class",
        "train.py",
        "        return self.rank == 0",
        "        return self.local_rank == 0",
        "RK406",
    ),
    ("prog-ddp", "train.py", "        scaler.unscale_(optimizer)\n", "", "RK501"),
    (
        "prog-ddp",
        "train.py",
        "        scaler.unscale_(optimizer)\n        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
        "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n        scaler.unscale_(optimizer)\n",
        "RK501",
    ),
    ("prog-srun", "train.py", "F.mse_loss(", "F.cross_entropy(", "RK505"),
    (
        "prog-ddp",
        "train.py",
        "device_ids=[local_rank])",
        "device_ids=[local_rank], bucket_cap_mb=1)",
        "RK604",
    ),
]


def found(files):
    return {
        (d.match.document.path, d.rule.code)
        for d in diagnostics(subjects_of(files))
        if d.match.severity is not Severity.NOTE
    }


@pytest.mark.parametrize(
    ("folder", "name", "old", "new", "code"),
    MUTANTS,
    ids=[f"{code}-{folder}-{i}" for i, (folder, _, _, _, code) in enumerate(MUTANTS)],
)
def test_a_mistake_put_into_a_correct_program_is_found(folder, name, old, new, code):
    files = {path.name: path.read_text() for path in sorted((CORPUS / folder).iterdir()) if path.is_file()}
    assert files[name].count(old) >= 1
    assert not found(files)
    files[name] = files[name].replace(old, new)
    assert code in {code for _, code in found(files)}
