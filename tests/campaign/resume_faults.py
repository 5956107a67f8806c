"""Faults of a resume, planted into the programs of ``scripts/``, and right resumes.

Each is a program with a few edits. ``expected`` is the code that names what was really lost; it was written down before
``rankup verify`` had judged the program. ``proved`` and ``equal within rounding`` are verdicts without a finding that
fails.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "verify"))

from forked_attempts import prove

from rankup.errors import RankupError
from rankup.verify.scenario import VerifyPlan

SCRIPTS = Path(__file__).parent / "scripts"
STYLES = {
    "epochs": "epochs",
    "ddp": "DDP",
    "crops": "random crops, accumulation",
    "amp": "AMP",
    "teacher": "EMA, mean teacher",
    "gan": "GAN",
    "workers": "loader workers",
    "steps": "steps, own Trainer",
    "trainer": "steps, own Trainer",
}
PROVED, ROUNDED = "proved", "equal within rounding"

Edits = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Planted:
    program: str
    what: str
    expected: str
    edits: Edits = ()
    ranks: int = 1
    words: tuple[str, ...] = ()

    @property
    def style(self) -> str:
        return STYLES[self.program]

    @property
    def text(self) -> str:
        text = (SCRIPTS / f"{self.program}.py").read_text()
        for old, new in self.edits:
            assert text.count(old) == 1, f"{self.program}, {self.what}: {text.count(old)} times {old!r}"
            text = text.replace(old, new)
        return text


def judged(folder: Path, planted: Planted) -> dict[str, str | bool]:
    """One row of the table: the verdict, and the code of the finding, in a folder of its own."""
    where = folder / f"{planted.program} {planted.what}".replace("/", "-")
    where.mkdir()
    shutil.copy(SCRIPTS / "pieces.py", where)
    script = where / f"{planted.program}.py"
    script.write_text(planted.text)
    verdict, code, message = "error", "", ""
    try:
        proof = prove(script, VerifyPlan(planted.ranks), planted.words)
        verdict = proof.conclusion
        if proof.findings:
            code, message = proof.findings[0].code, proof.findings[0].message
    except RankupError as error:
        code, message = error.code, error.message
    right = planted.expected in ((verdict,) if planted.expected in (PROVED, ROUNDED) else (code,))
    return {
        "style": planted.style,
        "program": planted.program,
        "what": planted.what,
        "ranks": str(planted.ranks),
        "verdict": verdict,
        "code": code,
        "expected": planted.expected,
        "right": right,
        "message": message,
    }


def _without(line: str) -> tuple[str, str]:
    return line, "pass"


_RNG = 'set_rng_state(checkpoint["rng"])'

_ACCUMULATION = """\
    for _ in range(accumulation_steps):
        x, y = get_batch()
        loss = model(x, y) / accumulation_steps
        loss.backward()
"""
_SAVED_WITHIN = """\
    while micro_step < accumulation_steps:
        x, y = get_batch()
        loss = model(x, y) / accumulation_steps
        loss.backward()
        micro_step += 1
        if (iter_num * accumulation_steps + micro_step) % 7 == 0:
            checkpoint = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "iter_num": iter_num,
                "micro_step": micro_step,
                "rng": rng_state(),
            }
            save(checkpoint, "ckpt.pt")
    micro_step = 0
"""
_PREFETCHED = """\
    for _ in range(accumulation_steps):
        loss = model(x, y) / accumulation_steps
        x, y = get_batch()  # the next one, while the device computes
        loss.backward()
"""

_EACH_STEP = """\
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
_LEFT_OVER = """\
        loss = criterion(model(x), y) / 2
        loss.backward()
        micro_batches += 1
        if micro_batches % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
    optimizer.zero_grad()  # what is left over is dropped
"""

FAULTS = (
    # One epoch after another.
    Planted(
        "epochs",
        "scheduler not loaded",
        "schedule-not-restored",
        (_without('scheduler.load_state_dict(checkpoint["scheduler"])'),),
    ),
    Planted(
        "epochs",
        "torch's generator not loaded: order and dropout",
        "generators-not-restored",
        (_without(_RNG),),
    ),
    Planted(
        "epochs",
        "the saved epoch is trained again",
        "other-end",
        (('checkpoint["epoch"] + 1', 'checkpoint["epoch"]'),),
    ),
    Planted(
        "epochs",
        "BatchNorm's buffers not saved, strict=False",
        "buffers-not-restored",
        (
            (
                '        "model": model.state_dict(),\n        "optimizer"',
                '        "model": dict(model.named_parameters()),\n        "optimizer"',
            ),
            (
                'model.load_state_dict(checkpoint["model"])',
                'model.load_state_dict(checkpoint["model"], False)',
            ),
        ),
    ),
    Planted(
        "epochs",
        "best accuracy not loaded: a worse model replaces best.pt",
        "other-files",
        (_without('best = checkpoint["best"]'),),
    ),
    # DistributedDataParallel.
    Planted(
        "ddp",
        "sampler's epoch counts from the resume",
        "data-not-restored",
        (("sampler.set_epoch(epoch)", "sampler.set_epoch(epoch - first)"),),
        ranks=2,
    ),
    Planted(
        "ddp",
        "each rank loads rank 0's generators",
        "generators-not-restored",
        (('checkpoint["rng"][rank]', 'checkpoint["rng"][0]'),),
        ranks=2,
    ),
    Planted(
        "ddp",
        "keys without 'module.' loaded into DDP, strict=False",
        "weights-not-restored",
        (
            (
                'net.load_state_dict(checkpoint["model"])',
                'model.load_state_dict(checkpoint["model"], strict=False)',
            ),
        ),
        ranks=2,
    ),
    Planted(
        "ddp",
        "optimizer in a file of its own, saved every second epoch: stale",
        "optimizer-not-restored",
        (
            ('            "optimizer": optimizer.state_dict(),\n', ""),
            ('checkpoint["optimizer"]', 'load("optimizer.pt")'),
            (
                "    if rank == 0:\n",
                "    if rank == 0 and epoch % 2 == 0:\n"
                '        save(optimizer.state_dict(), "optimizer.pt")\n'
                "    if rank == 0:\n",
            ),
        ),
        ranks=2,
    ),
    Planted(
        "ddp",
        "Python's generator not loaded",
        "generators-not-restored",
        (
            (
                'set_rng_state(checkpoint["rng"][rank])',
                'torch.set_rng_state(checkpoint["rng"][rank]["torch"])',
            ),
        ),
        ranks=2,
    ),
    # Random crops, as nanoGPT.
    Planted(
        "crops",
        "the iteration is counted after the save: off by one",
        "schedule-not-restored",
        (
            (
                "    iter_num += 1\n    if iter_num % save_interval == 0:",
                "    if (iter_num + 1) % save_interval == 0:",
            ),
            (
                'loss.item() * accumulation_steps:.4f}")\n',
                'loss.item() * accumulation_steps:.4f}")\n    iter_num += 1\n',
            ),
        ),
    ),
    Planted(
        "crops",
        "warm-up by the iterations of this process",
        "schedule-not-restored",
        (
            ("\nwhile iter_num", "\nlocal_iter_num = 0\nwhile iter_num"),
            ("= get_lr(iter_num)", "= get_lr(local_iter_num)"),
            ("    iter_num += 1\n", "    iter_num += 1\n    local_iter_num += 1\n"),
        ),
    ),
    Planted(
        "crops",
        "NumPy's generator not loaded: other crops",
        "generators-not-restored",
        ((_RNG, 'torch.set_rng_state(checkpoint["rng"]["torch"])'),),
    ),
    Planted(
        "crops",
        "saved within an accumulation: its gradients are lost",
        "pending-gradients",
        (
            (_ACCUMULATION, _SAVED_WITHIN),
            (
                "\nwhile iter_num",
                '\nmicro_step = checkpoint["micro_step"] if iter_num else 0\nwhile iter_num',
            ),
            ("    if iter_num % save_interval == 0:", "    if False:"),
        ),
    ),
    Planted(
        "crops",
        "the batch that was fetched ahead is lost",
        "data-not-restored",
        ((_ACCUMULATION, _PREFETCHED), ("\nwhile iter_num", "\nx, y = get_batch()\nwhile iter_num")),
    ),
    # Mixed precision.
    Planted(
        "amp",
        "scaler not loaded",
        "loss-scale-not-restored",
        (_without('scaler.load_state_dict(ckpt["scaler"])'),),
    ),
    Planted(
        "amp",
        "scaler's scale loaded, its count of good steps not",
        "loss-scale-not-restored",
        (
            (
                'scaler.load_state_dict(ckpt["scaler"])',
                'scaler.load_state_dict({**scaler.state_dict(), "scale": ckpt["scaler"]["scale"]})',
            ),
        ),
    ),
    Planted(
        "amp",
        "momentum buffers not saved, to have small files",
        "optimizer-not-restored",
        (('"opt": opt.state_dict()', '"opt": {**opt.state_dict(), "state": {}}'),),
    ),
    Planted(
        "amp",
        "optimizer's state loaded, its groups not: weight decay",
        "options-not-restored",
        (
            (
                'opt.load_state_dict(ckpt["opt"])',
                'opt.load_state_dict({**opt.state_dict(), "state": ckpt["opt"]["state"]})',
            ),
        ),
    ),
    Planted(
        "amp",
        "norms that clipping goes by not loaded",
        "hidden-state",
        (_without('norms = ckpt["norms"]'),),
    ),
    # Averages of weights.
    Planted(
        "teacher",
        "teacher begins as a copy of the student",
        "untrained-weights-not-restored",
        (('teacher.load_state_dict(state["teacher"])', 'teacher.load_state_dict(state["student"])'),),
    ),
    Planted(
        "teacher",
        "average that only the evaluation uses begins anew",
        "untrained-weights-not-restored",
        (('ema.module.load_state_dict(state["ema"])', 'ema.module.load_state_dict(state["student"])'),),
    ),
    Planted(
        "teacher",
        "the average is loaded as the student",
        "weights-not-restored",
        (('student.load_state_dict(state["student"])', 'student.load_state_dict(state["ema"])'),),
    ),
    Planted(
        "teacher",
        "ramp-up of the consistency begins anew",
        "hidden-state",
        (_without('updates = state["updates"]'),),
    ),
    Planted(
        "teacher",
        "average's number of updates, which sets its decay, not loaded",
        "other-files",
        (_without('ema.updates = state["ema_updates"]'),),
    ),
    # Two optimizers.
    Planted(
        "gan",
        "one of two optimizers not loaded",
        "optimizer-not-restored",
        (_without('optG.load_state_dict(state["optG"])'),),
    ),
    Planted(
        "gan",
        "one of two networks not loaded",
        "weights-not-restored",
        (_without('netG.load_state_dict(state["netG"])'),),
    ),
    Planted(
        "gan",
        "one of two schedules not loaded",
        "schedule-not-restored",
        (_without('schedD.load_state_dict(state["schedD"])'),),
    ),
    Planted(
        "gan",
        "each optimizer loads the other one's state",
        "resume-fails",
        (
            ('optG.load_state_dict(state["optG"])', 'optG.load_state_dict(state["optD"])'),
            ('optD.load_state_dict(state["optD"])', 'optD.load_state_dict(state["optG"])'),
        ),
    ),
    Planted(
        "gan",
        "torch's generator not loaded: noise",
        "generators-not-restored",
        (_without('set_rng_state(state["rng"])'),),
    ),
    # Workers.
    Planted(
        "workers",
        "torch's generator not loaded: order, and seeds of the workers",
        "generators-not-restored",
        (('set_rng_state(saved["rng"])', 'np.random.set_state(saved["rng"]["numpy"])'),),
    ),
    Planted(
        "workers",
        "workers that live for the whole training: their generators are in no file",
        "data-not-restored",
        (("num_workers=2,", "num_workers=2, persistent_workers=True,"),),
    ),
    Planted(
        "workers",
        "NumPy's generator not loaded: mix-up",
        "generators-not-restored",
        (('set_rng_state(saved["rng"])', 'torch.set_rng_state(saved["rng"]["torch"])'),),
    ),
    Planted(
        "workers",
        "label smoothing begins anew",
        "hidden-state",
        (_without('smoothing = saved["smoothing"]'),),
    ),
    Planted(
        "workers",
        "augmentation is seeded by the epochs of this process",
        "data-not-restored",
        (
            ("        self.strength = 0.1\n", "        self.strength = 0.1\n        self.epoch = 0\n"),
            (
                "        if random.random()",
                "        random.seed(1000 * self.epoch + index)\n        if random.random()",
            ),
            (
                "torch.randn_like(x), y",
                "torch.randn(6, generator=torch.Generator().manual_seed(1000 * self.epoch + index)), y",
            ),
            ("        epoch += 1\n", "        epoch += 1\n        loader.dataset.epoch += 1\n"),
        ),
    ),
    # Steps, and a Trainer of the user's own.
    Planted(
        "steps",
        "the stream begins anew",
        "data-not-restored",
        (("Stream(start=step * 8)", "Stream()"),),
    ),
    Planted(
        "trainer",
        "the best model with the last optimizer",
        "weights-not-restored",
        (('saved["model"]', 'load("best.pt")["model"]'),),
    ),
    Planted(
        "trainer",
        "what was unfrozen is frozen again",
        "frozen-not-restored",
        (("        self.unfreeze()\n        set_rng_state", "        set_rng_state"),),
    ),
    Planted(
        "trainer",
        "a save that is not whole: killed within it",
        "save-not-atomic",
        (("        save(saved, path)", "        torch.save(saved, path)"),),
    ),
    Planted(
        "trainer",
        "bad epochs of the early stop not loaded",
        "other-end",
        (('TrainState(**saved["state"])', 'TrainState(**{**saved["state"], "bad_epochs": 0})'),),
    ),
)

_PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.1)"
_SAVES_IN_THE_MIDDLE = """\
        scaler.update()
        if number == 1:
            ckpt = {"epoch": epoch, "skip": 2, "norms": norms, "rng": rng_state()}
            ckpt |= {"model": model.state_dict(), "opt": opt.state_dict(), "scaler": scaler.state_dict()}
            save(ckpt, "checkpoint.pt")
"""

RIGHT = (
    Planted("epochs", "as it is", PROVED),
    Planted(
        "epochs",
        "Adam, and a schedule by the loss",
        PROVED,
        (
            (
                "torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9, weight_decay=1e-3)",
                "torch.optim.Adam(model.parameters(), amsgrad=True)",
            ),
            ("torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)", _PLATEAU),
            ("    scheduler.step()\n", "    scheduler.step(loss.item())\n"),
        ),
    ),
    Planted(
        "epochs",
        "saves every second epoch",
        PROVED,
        (('    save(checkpoint, "last.pt")', '    if epoch % 2:\n        save(checkpoint, "last.pt")'),),
    ),
    Planted(
        "epochs",
        "a file for each epoch; goes on from the one before the newest",
        PROVED,
        (
            ('    save(checkpoint, "last.pt")', '    save(checkpoint, f"epoch-{epoch}.pt")'),
            ('if Path("last.pt").exists():', 'if len(files := sorted(Path().glob("epoch-*.pt"))) > 1:'),
            ('load("last.pt")', "load(files[-2])"),
        ),
    ),
    Planted("ddp", "one rank", PROVED),
    Planted("ddp", "two ranks", PROVED, ranks=2),
    Planted("ddp", "three ranks", ROUNDED, ranks=3),
    Planted("crops", "as it is", PROVED),
    Planted(
        "crops",
        "a generator of its own for the crops, saved",
        PROVED,
        (
            ("np.random.seed(1337)", "rng = np.random.default_rng(1337)"),
            (
                "np.random.randint(len(data) - block_size, size=batch_size)",
                "rng.integers(len(data) - block_size, size=batch_size)",
            ),
            (_RNG, _RNG + '\n    rng.bit_generator.state = checkpoint["crops"]'),
            ('"rng": rng_state(),', '"rng": rng_state(),\n            "crops": rng.bit_generator.state,'),
        ),
    ),
    Planted(
        "crops",
        "no accumulation",
        PROVED,
        (("accumulation_steps = 16, 6, 4, 2", "accumulation_steps = 16, 6, 4, 1"),),
    ),
    Planted("amp", "fp16", PROVED),
    Planted("amp", "bf16, scaler off", PROVED, words=("--dtype", "bfloat16")),
    Planted("amp", "fp32, scaler on, no momentum", PROVED, words=("--dtype", "float32", "--momentum", "0")),
    Planted(
        "amp",
        "saves in the middle of an epoch, and skips what was trained",
        PROVED,
        (
            ("    for x, y in DataLoader(", "    for number, (x, y) in enumerate(DataLoader("),
            ("generator=order):\n", "generator=order)):\n        if number < skip:\n            continue\n"),
            ('    save(ckpt, "checkpoint.pt")\n    print', "    skip = 0\n    print"),
            ("        scaler.update()\n", _SAVES_IN_THE_MIDDLE),
            ("epoch, norms = 0, []", "epoch, norms, skip = 0, [], 0"),
            ('    norms = ckpt["norms"]', '    norms, skip = ckpt["norms"], ckpt["skip"]'),
        ),
    ),
    Planted("teacher", "as it is", PROVED),
    Planted(
        "teacher",
        "torch's AveragedModel",
        PROVED,
        (
            ("ema = ModelEMA(student)", "ema = torch.optim.swa_utils.AveragedModel(student)"),
            ('ema.module.load_state_dict(state["ema"])', 'ema.load_state_dict(state["ema"])'),
            ('    ema.updates = state["ema_updates"]\n', ""),
            (
                '        "ema": ema.module.state_dict(),\n        "ema_updates": ema.updates,\n',
                '        "ema": ema.state_dict(),\n',
            ),
            ("ema.update(student)", "ema.update_parameters(student)"),
        ),
    ),
    Planted("gan", "as it is", PROVED),
    Planted(
        "gan",
        "G steps after every second batch of an epoch",
        PROVED,
        (
            ("    for real, _ in DataLoader(", "    for number, (real, _) in enumerate(DataLoader("),
            ("shuffle=True, generator=order):", "shuffle=True, generator=order)):"),
            (
                "        optD.step()\n",
                "        optD.step()\n        if number % 2 == 0:\n            continue\n",
            ),
        ),
    ),
    Planted("workers", "as it is", PROVED),
    Planted(
        "workers",
        "a generator of its own for the loader, saved",
        PROVED,
        (
            ("num_workers=2,", "num_workers=2, generator=torch.Generator().manual_seed(5),"),
            (
                'set_rng_state(saved["rng"])',
                'set_rng_state(saved["rng"])\n        loader.generator.set_state(saved["loader"])',
            ),
            (
                '"rng": rng_state(),',
                '"rng": rng_state(),\n            "loader": loader.generator.get_state(),',
            ),
        ),
    ),
    Planted("steps", "as it is: the rate is zero at first", PROVED),
    Planted("trainer", "as it is", PROVED),
    Planted("trainer", "SGD without momentum", PROVED, (("torch.optim.Adam(", "torch.optim.SGD("),)),
)

# Beyond the forty: combinations, and what was met on the way.
EXTRA = (
    Planted(
        "epochs",
        "the last micro-batch of an epoch is dropped",
        PROVED,
        (
            (
                "DataLoader(blobs(48), batch_size=12, shuffle=True)",
                "DataLoader(blobs(42), batch_size=6, shuffle=True)",
            ),
            ("    model.train()\n", "    model.train()\n    micro_batches = 0\n"),
            (_EACH_STEP, _LEFT_OVER),
        ),
    ),
    Planted(
        "teacher",
        "evaluates after the save, and so moves the generator",
        "generators-not-restored",
        (
            ("    score = accuracy(ema.module, test_loader)\n", ""),
            (
                '    save(state, "last.pt")\n',
                '    save(state, "last.pt")\n    score = accuracy(ema.module, test_loader)\n',
            ),
        ),
    ),
    Planted(
        "teacher",
        "average not loaded; each file holds a time",
        "untrained-weights-not-restored",
        (
            ("import copy\n", "import copy\nimport time\n"),
            _without('ema.module.load_state_dict(state["ema"])'),
            ('        "epoch": epoch + 1,\n', '        "epoch": epoch + 1,\n        "time": time.time(),\n'),
            (
                'save(ema.module.state_dict(), "average.pt")',
                'save({"time": time.time(), "ema": ema.module.state_dict()}, "average.pt")',
            ),
            ("accuracy of the average {score:.4f}", "done"),
        ),
    ),
    Planted(
        "steps",
        "loader begins after the generator was restored, and draws from it",
        "generators-not-restored",
        ((", generator=torch.Generator()))", "))"),),
    ),
    Planted(
        "steps",
        "stream begins a batch too far",
        "data-not-restored",
        (("step * 8", "(step + (step > 0)) * 8"),),
    ),
    Planted(
        "steps",
        "schedule not loaded, the rate was zero at the save",
        "schedule-not-restored",
        (_without('scheduler.load_state_dict(state["scheduler"])'),),
    ),
    Planted(
        "trainer",
        "temperature not loaded",
        "hidden-state",
        (('TrainState(**saved["state"])', 'TrainState(**{**saved["state"], "temperature": 2.0})'),),
    ),
    Planted("epochs", "history not loaded", "other-files", (_without('history = checkpoint["history"]'),)),
    Planted(
        "epochs",
        "counters of ReduceLROnPlateau not loaded",
        "schedule-not-restored",
        (
            (
                "torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)",
                _PLATEAU.replace("patience=0", "patience=1"),
            ),
            ("    scheduler.step()\n", "    scheduler.step(1.0)\n"),
            _without('scheduler.load_state_dict(checkpoint["scheduler"])'),
        ),
    ),
    Planted(
        "epochs",
        "buffers not saved, and BatchNorm evaluates from the second epoch on",
        "buffers-not-restored",
        (
            *FAULTS[3].edits,
            ("    model.train()\n", "    model.train()\n    model[1].train(epoch == 0)\n"),
        ),
    ),
    Planted(
        "epochs",
        "no momentum, optimizer not saved, network not loaded by a wrong key",
        "weights-not-restored",
        (
            ("momentum=0.9, ", ""),
            (
                'model.load_state_dict(checkpoint["model"])',
                'model.load_state_dict(checkpoint.get("net", {}), strict=False)',
            ),
        ),
    ),
    Planted(
        "crops",
        "evaluates again right after the resume, and so draws: as if a batch was fetched ahead",
        "data-not-restored",
        ((_RNG, _RNG + "\n    model(*get_batch())"),),
    ),
    Planted(
        "crops",
        "a generator of its own for the crops, not saved",
        "data-not-restored",
        (
            ("np.random.seed(1337)", "rng = np.random.default_rng(1337)"),
            (
                "np.random.randint(len(data) - block_size, size=batch_size)",
                "rng.integers(len(data) - block_size, size=batch_size)",
            ),
        ),
    ),
    Planted(
        "workers",
        "a generator of its own for the loader, not saved",
        "data-not-restored",
        (("num_workers=2,", "num_workers=2, generator=torch.Generator().manual_seed(5),"),),
    ),
    Planted(
        "gan",
        "D's network not loaded",
        "weights-not-restored",
        (_without('netD.load_state_dict(state["netD"])'),),
    ),
    Planted(
        "gan",
        "D's optimizer not loaded",
        "optimizer-not-restored",
        (_without('optD.load_state_dict(state["optD"])'),),
    ),
    Planted(
        "ddp",
        "three ranks, scheduler not loaded",
        "schedule-not-restored",
        (
            _without('scheduler.load_state_dict(checkpoint["scheduler"])'),
            ("StepLR(optimizer, step_size=1, gamma=0.8)", "LambdaLR(optimizer, lambda n: 0.8**n)"),
        ),
        ranks=3,
    ),
    Planted(
        "ddp",
        "three ranks, generators not loaded",
        "generators-not-restored",
        (_without('set_rng_state(checkpoint["rng"][rank])'),),
        ranks=3,
    ),
    Planted(
        "ddp",
        "generators in a file for each rank: killed between two files",
        "generators-not-restored",
        (
            ('checkpoint["rng"][rank]', 'load(f"rng-{rank}.pt")'),
            ("    states = [rng_state()] * world\n", '    save(rng_state(), f"rng-{rank}.pt")\n'),
            ("        dist.all_gather_object(states, rng_state())\n", "        dist.barrier()\n"),
            ('            "rng": states,  # in the same file: two files are never of the same moment\n', ""),
        ),
        ranks=2,
    ),
)
