"""How a workload is trained, as options that ``rankup train`` and ``rankup scale`` share."""

from __future__ import annotations

from typing import Annotated

import typer

PrecisionOption = Annotated[str, typer.Option(help="fp32, tf32, bf16, fp16 or fp64")]
StrategyOption = Annotated[str, typer.Option(help="auto, none, dp, ddp, fsdp, tp, pp or deepspeed")]
AccumulateOption = Annotated[int, typer.Option(metavar="N", help="micro-batches per step")]
ClipOption = Annotated[float | None, typer.Option(metavar="NORM", help="largest norm of the gradient")]
LrRuleOption = Annotated[str, typer.Option(help="none, linear or sqrt: scale --lr with the global batch")]
BaseBatchOption = Annotated[
    int | None, typer.Option(metavar="N", help="global batch that --lr was chosen for; with --lr-rule")
]
WarmupOption = Annotated[int, typer.Option(metavar="STEPS", help="the learning rate rises over so many")]
FusedOption = Annotated[
    bool, typer.Option("--fused/--no-fused", help="optimizer kernels over all parameters")
]
CompileOption = Annotated[bool, typer.Option("--compile", help="torch.compile")]
ChannelsLastOption = Annotated[bool, typer.Option("--channels-last", help="memory format of convolutions")]
SyncBatchnormOption = Annotated[bool, typer.Option("--sync-batchnorm", help="over all processes; GPUs only")]
StaticGraphOption = Annotated[
    bool, typer.Option("--static-graph", help="ddp: every step uses the same parameters")
]
ShardSizeOption = Annotated[
    int, typer.Option(metavar="N", help="fsdp: processes that share one copy; 0: all of them")
]
ExactOption = Annotated[
    str, typer.Option(help="same-world, or any-world: the same bits on any number of processes")
]
VirtualShardsOption = Annotated[
    int, typer.Option(metavar="N", help="any-world: parts of a global batch; as many processes at most")
]
MicrobatchesOption = Annotated[
    int, typer.Option(metavar="N", help="pp: per batch, at most; 0: two per stage")
]
