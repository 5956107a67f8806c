"""Small complete trainings: those with a fault planted in them, and those that are right.

Each is one program with a few lines put in: 18 steps in three epochs of a tiny network. ``expected`` are the codes that
are right for a fault: a finding's, or an error's.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent, indent

PROGRAM = """\
import copy, math, os, random, sys, time
from collections import deque
import numpy
import torch
from torch import nn
from torch.optim.lr_scheduler import *
from torch.optim.swa_utils import AveragedModel
import rankup

run = rankup.init()
points = torch.randn(24, 3, generator=torch.Generator().manual_seed(1))
dataset = rankup.ResidentData(points, points.sum(1, keepdim=True))
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.2), nn.Linear(4, 1))
{make}
sgd = lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)
model, opt, data = run.prepare(net, sgd, dataset, global_batch=4{options})
{before}
{loop}
{after}
"""
EPOCHS = """\
for epoch in run.epochs(3):
    model.train()
{begin}
    for x, y in epoch:
{body}
{behind}
"""
BODY = """\
loss = (model(x) - y).square().mean()
loss.backward()
opt.step()
opt.zero_grad()
"""
HOLDER = """
class Holder:
    def __init__(self, **values):
        self.__dict__ |= values
    def state_dict(self):
        return dict(vars(self))
    def load_state_dict(self, state):
        vars(self).update(state)
"""


@dataclass(frozen=True)
class Planted:
    """``pre``, ``post``: before and after the step in the inner loop's body, unless ``body`` or ``loop`` replace it."""

    name: str
    expected: tuple[str, ...] = ()
    processes: int = 1
    make: str = ""
    before: str = ""
    begin: str = ""
    pre: str = ""
    body: str = BODY
    post: str = ""
    behind: str = ""
    loop: str = EPOCHS
    after: str = ""
    options: str = ""

    @property
    def text(self) -> str:
        body = "\n".join(dedent(part) for part in (self.pre, self.body, self.post))
        loop = self.loop.format(
            begin=indent(dedent(self.begin), 4 * " "),
            body=indent(body, 8 * " "),
            flat=indent(body, 4 * " "),
            behind=indent(dedent(self.behind), 4 * " "),
        )
        return PROGRAM.format(
            make=dedent(self.make),
            before=dedent(self.before),
            loop=loop,
            after=dedent(self.after),
            options=self.options,
        )


FLAT = "for x, y in run.steps(data, epochs=3):\n{flat}"
STATE, VARIABLE, END = ("state-not-in-snapshot",), ("unsaved-variable",), ("other-end",)
# A kill may fall before the first snapshot, or while the file is being written.
LEFT = ("left-by-a-killed-attempt", *VARIABLE, "resume-fails")
EVALUATION = "for x, y in run.batches(dataset, global_batch=8):\n    model(x)"
NOISY = "x = x + 0.1 * torch.randn(x.shape, generator=noise)"
STEP_LR = "schedule = StepLR(opt, 1, 0.5)"
SCALE_LR = "opt.param_groups[0]['lr'] = 0.05 / (1 + {})"
STATEFUL_DATA = """
class Points(torch.utils.data.Dataset):
    def __init__(self):
        {init}
    def __len__(self):
        return 24
    def __getitem__(self, i):
        {get}
dataset = Points()
"""


def stateful_data(init: str, get: str) -> str:
    return STATEFUL_DATA.format(init=init, get=get)


FAULTS = [
    Planted("schedule", STATE, before=STEP_LR, behind="schedule.step()"),
    Planted(
        "schedule_that_changes_nothing_yet",
        STATE,
        before="schedule = StepLR(opt, 99)",
        behind="schedule.step()",
    ),
    Planted(
        "plateau", STATE, before="schedule = ReduceLROnPlateau(opt, patience=0)", behind="schedule.step(1.0)"
    ),
    Planted(
        "sequential_schedule",
        STATE,
        before="schedule = SequentialLR(opt, [ConstantLR(opt), StepLR(opt, 1)], [1])",
        behind="schedule.step()",
    ),
    Planted(
        "schedule_per_step", STATE, before="schedule = CosineAnnealingLR(opt, 18)", post="schedule.step()"
    ),
    Planted(
        "average", STATE, 2, before="average = AveragedModel(net)", post="average.update_parameters(net)"
    ),
    Planted(
        "teacher_averaged_by_hand",
        STATE,
        before="teacher = copy.deepcopy(net)",
        post="with torch.no_grad():\n    [t.lerp_(s, 0.1) for t, s in zip(teacher.parameters(), net.parameters())]",
    ),
    Planted(
        "second_optimizer",
        STATE,
        before="head = nn.Linear(1, 1)\nsecond = torch.optim.Adam(head.parameters())",
        body="loss = (head(model(x)) - y).square().mean()\nloss.backward()\nopt.step()\nsecond.step()\n"
        "opt.zero_grad()\nsecond.zero_grad()",
    ),
    Planted("own_generator", STATE, before="noise = torch.Generator().manual_seed(3)", pre=NOISY),
    Planted(
        "own_generator_per_rank",
        STATE,
        2,
        before="noise = torch.Generator().manual_seed(run.world.rank)",
        pre=NOISY,
    ),
    Planted("python_generator", STATE, before="noise = random.Random(3)", pre="x = x + noise.random()"),
    Planted(
        "numpy_generator", STATE, before="noise = numpy.random.default_rng(3)", pre="x = x + noise.random()"
    ),
    Planted(
        "loss_scaler_of_its_own",
        STATE,
        make=HOLDER,
        before="scaler = Holder(scale=1.0)",
        post="scaler.scale *= 2",
    ),
    Planted("rate_by_counter", VARIABLE, before="n = 0", pre="n += 1\n" + SCALE_LR.format("n")),
    Planted(
        "warm_up_by_counter",
        VARIABLE,
        2,
        before="n = 0",
        pre="n += 1\nopt.param_groups[0]['lr'] = 0.05 * min(1, n / 15)",
    ),
    Planted(
        "curriculum_by_list",
        VARIABLE,
        before="seen = []",
        pre="seen.append(1)\nx = x * min(1, len(seen) / 16)",
    ),
    Planted(
        "replay_in_a_list",
        VARIABLE,
        before="replay = []",
        pre="replay.append((x.clone(), y.clone()))\nx, y = random.choice(replay)",
    ),
    Planted(
        "worst_model_copied",
        (*VARIABLE, "resume-fails"),
        before="worst = 0.0",
        post="if loss.item() > worst:\n    worst, saved = loss.item(), copy.deepcopy(net.state_dict())",
        after="net.load_state_dict(saved)",
    ),
    Planted(
        "initialised_at_the_first_step",
        VARIABLE,
        before="started = False",
        pre="if not started:\n    nn.init.constant_(net[0].bias, 0.1)\n    started = True",
    ),
    Planted(
        "momentum_by_hand",
        VARIABLE,
        before="velocity = {}",
        body="loss = (model(x) - y).square().mean()\nloss.backward()\nwith torch.no_grad():\n"
        "    for name, p in net.named_parameters():\n"
        "        velocity[name] = 0.9 * velocity.get(name, 0) + p.grad\n"
        "        p -= 0.01 * velocity[name]\nopt.zero_grad()",
    ),
    Planted(
        "clipped_by_the_history_of_norms",
        VARIABLE,
        before="norms = []",
        body="loss = (model(x) - y).square().mean()\nloss.backward()\n"
        "norms.append(nn.utils.get_total_norm([p.grad for p in net.parameters()]).item())\n"
        "nn.utils.clip_grad_norm_(net.parameters(), min(norms))\nopt.step()\nopt.zero_grad()",
    ),
    Planted(
        "average_from_a_counted_step_on",
        VARIABLE,
        before="average = AveragedModel(net)\nrun.register(average=average)\nn = 0",
        post="n += 1\nif n > 3:\n    average.update_parameters(net)",
    ),
    Planted(
        "window_of_losses",
        VARIABLE,
        before="window = deque(maxlen=5)",
        pre=SCALE_LR.format("sum(window)"),
        post="window.append(loss.item())",
    ),
    Planted(
        "centre_in_a_tensor",
        VARIABLE,
        before="centre = torch.zeros(1)",
        pre="centre = 0.9 * centre + 0.1 * y.mean()\ny = y - centre",
    ),
    Planted(
        "break_by_enumerate",
        END,
        loop="for n, (x, y) in enumerate(run.steps(data, epochs=3)):\n{flat}\n    if n == 13:\n        break",
    ),
    Planted(
        "patience_in_a_variable", END, before="waited = 0", behind="waited += 1\nif waited == 2:\n    break"
    ),
    Planted("early_stop_by_counter_of_steps", END, before="n = 0", post="n += 1\nif n == 4:\n    break"),
    Planted(
        "stop_by_best_loss",
        (*END, *VARIABLE),
        before="best, value = math.inf, 1.0",
        post="value = loss.item()",
        behind="if best < math.inf:\n    break\nbest = value",
    ),
    Planted("time", ("not-deterministic",), pre="x = x * (1 + time.time() % 1)"),
    Planted(
        "seeded_by_the_system",
        ("unseeded-random",),
        pre="torch.manual_seed(int.from_bytes(os.urandom(4), 'big'))",
    ),
    Planted(
        "seeded_by_the_process",
        ("not-deterministic",),
        2,
        before="noise = torch.Generator().manual_seed(os.getpid())",
        pre=NOISY,
    ),
    Planted(
        "file_of_an_earlier_attempt",
        LEFT,
        before="first = float(open('last').read()) if os.path.exists('last') else 0.0",
        pre="x = x + first",
        post="open('last', 'w').write(str(loss.item()))",
    ),
    Planted(
        "file_that_grows",
        LEFT,
        pre="open('lines', 'a').write('x')\n" + SCALE_LR.format("os.path.getsize('lines')"),
    ),
    Planted(
        "data_with_a_counter",
        ("data-begins-anew",),
        make=stateful_data(
            # Not a plain number, which a resume would restore.
            "self.calls = [numpy.zeros(2000)]",
            "self.calls[0] += 1; return points[i] + self.calls[0][0], points[i].sum()[None]",
        ),
    ),
    Planted(
        "augmentation_by_the_time",
        ("unseeded-augmentation",),
        make=stateful_data("pass", "return points[i] + time.time() % 1, points[i].sum()[None]"),
    ),
    Planted(
        "data_made_anew",
        ("unseeded-data",),
        make="own = torch.Generator()\nown.seed()\npoints = torch.randn(24, 3, generator=own)\n"
        "dataset = rankup.ResidentData(points, points.sum(1, keepdim=True))",
    ),
    Planted(
        "order_by_the_process",
        ("other-order",),
        make="order = list(range(24))\n"
        "random.Random(time.time_ns()).shuffle(order)\n"
        "dataset = rankup.ResidentData(points[order], points[order].sum(1, keepdim=True))",
    ),
    Planted("no_end_of_the_interpreter", ("no-end",), after="sys.stdout.flush()\nos._exit(0)"),
    Planted(
        "changed_after_the_loop",
        VARIABLE,
        before="n = 0",
        post="n += 1",
        after="with torch.no_grad():\n    net[0].bias.fill_(n)",
    ),
    Planted("model_of_unseeded_weights", ("unseeded-model",), make="torch.seed()\nnet = nn.Linear(3, 1)"),
    Planted(
        "best_model_saved_by_a_variable",
        ("other-files",),
        before="best = 0.0",
        behind="if 1 / (1 + epoch.index) > best:\n    best = 1 / (1 + epoch.index)\n"
        "    torch.save(net.state_dict(), 'best.pt')",
    ),
    Planted(
        "report_of_a_list",
        ("other-files",),
        before="seen = []",
        post="seen.append(run.global_step)",
        after="os.makedirs('out', exist_ok=True)\nopen('out/seen.tmp', 'w').write(str(seen))\n"
        "os.rename('out/seen.tmp', 'out/seen.csv')",
    ),
    Planted(
        "printed_mean_of_a_variable",
        ("other-output",),
        before="total = 0.0",
        post="total += loss.item()",
        after="print(f'{time.time_ns()} ns')\nprint(f'mean loss {total / 18:.4f}')",
    ),
]

RIGHT = [
    Planted(
        "data_with_a_generator",
        make=stateful_data(
            "self.r = random.Random(1)", "return points[i] + self.r.random(), points[i].sum()[None]"
        ),
    ),
    Planted(
        "data_with_a_plain_counter",
        before="run.register(dataset=dataset)",
        make=stateful_data(
            "self.calls = 0", "self.calls += 1; return points[i] + self.calls, points[i].sum()[None]"
        ),
    ),
    Planted("plain"),
    Planted("plain_on_two", processes=2, behind=EVALUATION),
    Planted("plain_on_three", processes=3),
    Planted("flat", loop=FLAT),
    # A save at the end of an epoch waits for this code, so that no resume begins in front of it.
    Planted("variable_of_the_body_used_after_it", behind="run.log(loss=loss.item())"),
    Planted("by_steps", loop="for x, y in run.steps(data, steps=15):\n{flat}"),
    Planted("one_epoch", loop="for x, y in run.steps(data, epochs=1):\n{flat}"),
    Planted(
        "schedule_registered", before=STEP_LR + "\nrun.register(schedule=schedule)", behind="schedule.step()"
    ),
    Planted(
        "sequential_schedule_registered",
        before="schedule = SequentialLR(opt, [ConstantLR(opt), StepLR(opt, 1)], [1])\nrun.register(schedule=schedule)",
        behind="schedule.step()",
    ),
    Planted(
        "chained_schedules_registered",
        before="both = [ConstantLR(opt), StepLR(opt, 1)]\nschedule = ChainedScheduler(both)\n"
        "run.register(schedule=schedule)",
        behind="schedule.step()",
    ),
    Planted(
        "average_registered",
        processes=2,
        before="average = AveragedModel(net)\nrun.register(average=average)",
        post="average.update_parameters(net)",
    ),
    Planted(
        "average_taken_after_the_loop",
        before="average = AveragedModel(net)\nrun.register(average=average)",
        post="average.update_parameters(net)",
        after="net.load_state_dict(average.module.state_dict())",
    ),
    Planted(
        "noise_of_the_global_generators", pre="x = x + torch.rand(1) + random.random() + numpy.random.rand()"
    ),
    Planted(
        "generator_seeded_by_the_step",
        before="noise = torch.Generator()\nrun.forget('noise')",
        pre="noise.manual_seed(run.global_step)\n" + NOISY,
    ),
    Planted(
        "generator_registered",
        before="noise = torch.Generator().manual_seed(3)\nrun.register(noise=noise)",
        pre=NOISY,
    ),
    Planted(
        "break_by_the_step",
        loop="for x, y in run.steps(data, epochs=3):\n{flat}\n    if run.global_step == 13:\n        break",
    ),
    Planted("break_by_the_epoch", behind="if epoch.index == 1:\n    break"),
    Planted(
        "wait_registered",
        before="values = run.register(waited=0)",
        behind="values.waited += 1\nif values.waited == 2:\n    break",
    ),
    Planted(
        "counter_registered",
        before="values = run.register(n=0)",
        pre="values.n += 1\n" + SCALE_LR.format("values.n"),
    ),
    Planted(
        "list_registered",
        before="seen = []\nrun.register(seen=seen)",
        pre="seen.append(x.mean().item())\nx = x * min(1, len(seen) / 16)",
    ),
    Planted(
        "best_registered",
        before="best = {{}}\nrun.register(best=best)".format(),
        post="if loss.item() > best.get('loss', 0.0):\n"
        "    best.update(loss=loss.item(), net=copy.deepcopy(net.state_dict()))",
        after="net.load_state_dict(best['net'])",
    ),
    Planted(
        "frozen_teacher",
        before="teacher = copy.deepcopy(net).eval()",
        pre="y = y + 0.1 * teacher(x).detach()",
    ),
    Planted("evaluation", behind="model.eval()\n" + EVALUATION, post="run.log(loss=loss.item())"),
    Planted(
        "evaluation_within_a_step",
        pre="if run.global_step % 5 == 4:\n"
        "    for a, b in run.batches(dataset, global_batch=8):\n        model(a)",
    ),
    Planted(
        "evaluation_with_a_loader_of_its_own",
        before="own = torch.Generator().manual_seed(1)\n"
        "loader = torch.utils.data.DataLoader(points, 8, shuffle=True, generator=own)\nrun.register(own=own)",
        behind="with torch.no_grad():\n    [model(x) for x in loader]",
    ),
    Planted(
        "mean_reset_in_every_epoch",
        make=HOLDER,
        before="meter = Holder(total=0.0)\nrun.forget('meter')",
        begin="meter.total = 0.0",
        post="meter.total += loss.item()",
    ),
    Planted("batch_norm", make="net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))"),
    Planted(
        "buffer_that_is_not_persistent",
        make="net.register_buffer('seen', torch.zeros(1), persistent=False)",
        pre="net.seen += 1\nx = x * (1 + net.seen / 99)",
    ),
    Planted(
        "accumulated_by_hand",
        body="((model(x) - y).square().mean() / 3).backward()\n"
        "if run.global_step % 3 == 2:\n    opt.step()\n    opt.zero_grad()",
    ),
    Planted(
        "accumulated_by_prepare",
        options=", accumulate=2",
        body="run.backward((model(x) - y).square().mean())\nrun.step(opt)",
    ),
    Planted(
        "clipped", options=", clip=0.1", body="run.backward((model(x) - y).square().mean())\nrun.step(opt)"
    ),
    Planted(
        "best_model_saved_by_a_registered_number",
        make="print(time.time_ns(), file=open('log', 'a'))",
        before="values = run.register(best=0.0, total=0.0)",
        post="values.total += loss.item()",
        behind="if 1 / (1 + epoch.index) > values.best:\n    values.best = 1 / (1 + epoch.index)\n"
        "    torch.save({{'net': net.state_dict(), 'opt': opt.state_dict()}}, 'best.tmp')\n"
        "    os.replace('best.tmp', 'best.pt')".format(),
        after="torch.save(opt.state_dict(), 'last.pt')\nprint(f'{time.time_ns()} ns, mean {values.total / 18:.4f}')",
    ),
    Planted("saved_by_hand", processes=2, behind="run.save()"),
    Planted(
        "two_networks",
        before="other, other_opt, _ = run.prepare(nn.Linear(1, 1), lambda p: torch.optim.Adam(p))",
        body="loss = (other(model(x)) - y).square().mean()\nloss.backward()\nopt.step()\nother_opt.step()\n"
        "opt.zero_grad()\nother_opt.zero_grad()",
    ),
    Planted(
        "two_trainings",
        after="""
            run = rankup.init(name="second")
            model, opt, data = run.prepare(nn.Linear(3, 1), sgd, dataset, global_batch=4)
            for x, y in run.steps(data, epochs=2):
                (model(x) - y).square().mean().backward()
                opt.step()
                opt.zero_grad()
            """,
    ),
    Planted(
        "clock_and_losses_for_a_log",
        before="began, losses = time.time(), []\nrun.forget('losses')",
        post="losses.append(loss.item())\nspeed = len(losses) / (time.time() - began)",
    ),
    Planted(
        "scaler_that_is_off",
        before="scaler = torch.amp.GradScaler('cpu', enabled=False)",
        body="loss = (model(x) - y).square().mean()\nscaler.scale(loss).backward()\nscaler.step(opt)\n"
        "scaler.update()\nopt.zero_grad()",
    ),
]
