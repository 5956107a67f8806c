"""NCCL and CUDA, through torch or by themselves. Most errors of NCCL follow from the end of another rank."""

from __future__ import annotations

from rankup.explain.signatures.signature import FALLOUT, LOOK_AT_PEERS, NOISE, ROOT, WEAK, Signature

NCCL = (
    Signature(
        name="cuda-out-of-memory",
        pattern=(
            "OutOfMemoryError|CUDA out of memory|CUDA error: out of memory|HIP out of memory"
            "|CUBLAS_STATUS_ALLOC_FAILED"
        ),
        level=ROOT,
        what="the memory of a GPU is full",
        cause=(
            "model, optimizer, activations and batch require more than the GPU has, or another "
            "process uses it too; much reserved but unallocated memory means fragmentation"
        ),
        fix=(
            "smaller batches with accumulation, bf16, activation checkpointing or --strategy fsdp; "
            "check that each rank has a GPU of its own, and that torch.load uses map_location"
        ),
        example=(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a "
            "total capacity of 79.14 GiB of which 3.06 MiB is free."
        ),
        rules=("RK402", "RK202"),
    ),
    Signature(
        name="invalid-device",
        pattern="invalid device ordinal",
        level=ROOT,
        what="a rank asks for a GPU that it does not have",
        cause=(
            "the device's number is at least the number of GPUs that this process sees: the global "
            "rank was taken for it, or the launcher shows each task one GPU only, which is number 0"
        ),
        fix=(
            "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])); number 0 where "
            "CUDA_VISIBLE_DEVICES has one entry"
        ),
        example="RuntimeError: CUDA error: invalid device ordinal",
        rules=("RK201", "RK118", "RK203"),
    ),
    Signature(
        name="duplicate-gpu",
        pattern="Duplicate GPU detected",
        level=ROOT,
        what="two ranks use the same GPU",
        cause=(
            "no rank chose a device before the process group was made, or there are more ranks "
            "than GPUs on the node"
        ),
        fix="torch.cuda.set_device(LOCAL_RANK) before init_process_group; as many ranks as GPUs",
        example="Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 50000",
        rules=("RK202", "RK106"),
    ),
    Signature(
        name="no-cuda",
        pattern=(
            "Torch not compiled with CUDA enabled|No supported gpu backend found|Found no NVIDIA driver"
            "|No CUDA GPUs are available"
            "|no CUDA-capable device is detected|CUDA driver initialization failed"
            "|CUDA driver version is insufficient"
        ),
        level=ROOT,
        what="no GPU can be used here",
        cause=("the job has no GPU, torch is a build without CUDA, or the node's driver is too old for it"),
        fix=(
            "ask for GPUs (--gpus-per-node, --gres), `nvidia-smi` in the job; install a CUDA build "
            "of torch on the cluster"
        ),
        example="RuntimeError: Found no NVIDIA driver on your system.",
        rules=("RK108",),
    ),
    Signature(
        name="no-kernel-image",
        pattern="no kernel image is available",
        level=ROOT,
        what="this build of torch has no code for this GPU",
        cause="the wheel was built for other generations of GPUs than this node has",
        fix="install a torch whose `torch.cuda.get_arch_list()` holds the GPU's architecture",
        example="RuntimeError: CUDA error: no kernel image is available for execution on the device",
        rules=("RK126",),
    ),
    Signature(
        name="device-assert",
        pattern="device-side assert triggered",
        level=ROOT,
        what="an assertion failed on the GPU",
        cause=(
            "most often a label or an index is out of range; the line in the traceback is later "
            "than the error"
        ),
        fix="run again with CUDA_LAUNCH_BLOCKING=1, or on the CPU, which names the value",
        example="RuntimeError: CUDA error: device-side assert triggered",
    ),
    Signature(
        name="illegal-memory-access",
        pattern="illegal memory access|unspecified launch failure|misaligned address",
        level=ROOT,
        what="a kernel on the GPU read or wrote memory that is not its own",
        cause="a defect in a CUDA extension or kernel, an index out of range, or broken hardware",
        fix=(
            "run again with CUDA_LAUNCH_BLOCKING=1 to find the operation; if it is always the same "
            "node, exclude it"
        ),
        example=(
            "RuntimeError: CUDA error: an illegal memory was encountered: an illegal memory access "
            "was encountered"
        ),
    ),
    Signature(
        name="gpu-hardware",
        pattern=(
            r"\bXid\b.*\d+|uncorrectable (NVLink|ECC) error|uncorrectable ECC"
            "|GPU has fallen off the bus|ECC error encountered|device-side hardware"
        ),
        level=ROOT,
        what="a GPU of this node is defective",
        cause="the driver reports an error of the hardware",
        fix="exclude the node (--exclude NODE), tell the site, and resume",
        example="NVRM: Xid (PCI:0000:65:00): 79, pid=1234, GPU has fallen off the bus.",
    ),
    Signature(
        name="nccl-interface",
        pattern=(
            r"(socketStartConnect|socketPollConnect|Call to (bind|connect|listen))\b.* : "
            "(No route to host|Network is unreachable|Cannot assign requested address"
            "|Software caused connection abort|Connection timed out|Invalid argument)"
        ),
        level=ROOT,
        what="NCCL cannot connect the ranks over the network interface that it chose",
        cause=(
            "the interface leads to no other node (docker0, lo, a link-local IPv6 address), or a firewall closes the "
            "way"
        ),
        fix=(
            "set NCCL_SOCKET_IFNAME to the interface that connects the nodes (`ip -brief address`); NCCL_DEBUG=INFO "
            "shows the one that was chosen"
        ),
        example="socketStartConnect: Connect to 192.168.19.14<52822> failed : No route to host",
        rules=("RK117",),
        likely=True,
    ),
    Signature(
        name="nccl-network",
        pattern=(
            r"NCCL WARN.*(Call to (ibv_\w+|bind|connect)|Got completion from peer .* with (error"
            r"|status)|NET/IB.*(error|failed))|ibv_\w+ failed"
        ),
        level=ROOT,
        what="NCCL's network failed",
        cause=(
            "an InfiniBand or RoCE operation failed: a link, a limit of locked memory (`ulimit "
            "-l`), or the interface is wrong"
        ),
        fix=(
            "NCCL_DEBUG=INFO shows the interface; check `ulimit -l` in the job; exclude a node "
            "that fails again"
        ),
        example=("node01:534:1763 [3] NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory"),
        likely=True,
    ),
    Signature(
        name="nccl-remote-error",
        pattern=(
            "ncclRemoteError|remote process (has )?exited|NCCL communicator was aborted"
            "|ncclSystemError: (?!System call).*(peer|remote|reset)|Call to recv from .* failed"
            "|[cC]onnect to .* failed : Connection (refused|reset)"
        ),
        level=FALLOUT,
        what="NCCL lost another rank",
        cause="another rank ended while this one communicated with it",
        fix=LOOK_AT_PEERS,
        example=(
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2006, remote "
            "process exited or there was a network error, NCCL version 2.21.5 ncclRemoteError"
        ),
    ),
    Signature(
        name="nccl-system-error",
        pattern="NCCL.*unhandled (system|cuda|internal) error|ncclUnhandledCudaError|ncclInternalError",
        level=WEAK,
        what="NCCL failed, and torch does not say why",
        cause="the network, the driver or shared memory: NCCL's own warning has the cause",
        fix="run again with NCCL_DEBUG=INFO, and read the first `NCCL WARN`",
        example=(
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1333, "
            "unhandled system error (run with NCCL_DEBUG=INFO for details)"
        ),
        rules=("RK120",),
        likely=True,
    ),
    Signature(
        name="nccl-watchdog",
        pattern="Watchdog caught collective operation timeout",
        level=WEAK,
        what="a collective did not end in time",
        cause=(
            "not all ranks came to the same collective: one hung, failed, ran longer, or takes "
            "another path through the script"
        ),
        fix=(
            "look what the rank that is behind did last (`py-spy dump` while it hangs); give all "
            "ranks the same number of steps"
        ),
        example=(
            "[rank0]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught "
            "collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=131072000, "
            "NumelOut=131072000, Timeout(ms)=600000) ran for 600081 milliseconds before timing out."
        ),
        rules=("RK207", "RK208", "RK305"),
    ),
    Signature(
        name="nccl-watchdog-stuck",
        pattern="watchdog got stuck for|due to ProcessGroupNCCL watchdog hang",
        level=WEAK,
        what="a call of CUDA or NCCL hung, and the process was ended by NCCL's monitor",
        cause=(
            "a rank could not end a call: another thread held Python's lock inside of CUDA, a defective GPU or driver, "
            "or the clean-up of a communicator after another rank had failed"
        ),
        fix=(
            "look what other ranks and the kernel's log said before (Xid); TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC gives more "
            "time if it was only slow"
        ),
        example=(
            "[rank7]:[E626 05:14:36.393 ProcessGroupNCCL.cpp:1743] [Rank 7] ProcessGroupNCCL's watchdog got stuck for "
            "480 seconds without making progress in monitoring enqueued collectives."
        ),
        likely=True,
    ),
    Signature(
        name="nccl-watchdog-follower",
        pattern=(
            "failure detected by watchdog|detected by watchdog at work|Timeout at NCCL work"
            "|NCCL watchdog thread terminated with exception"
            "|Some NCCL operations have failed or timed out|taking the entire process down"
            "|HeartbeatMonitor|heartbeat monitor|Observed flight recorder dump signal"
            "|Received a dump signal|FlightRecorder"
        ),
        level=FALLOUT,
        what="NCCL's watchdog ended the process",
        cause="a collective had failed or timed out before",
        fix=LOOK_AT_PEERS,
        example=(
            "[rank4]:[E1016 03:31:38.929 ProcessGroupNCCL.cpp:621] [Rank 4] Some NCCL operations "
            "have failed or timed out."
        ),
    ),
    Signature(
        name="noise-network-socket",
        pattern="Using network Socket",
        level=NOISE,
        what="NCCL uses TCP sockets",
        cause="no InfiniBand or OFI plug-in was found: between nodes this is slow, but it works",
        fix="load the site's module with the plug-in, or set NCCL_NET",
        example="node01:12:12 [0] NCCL INFO Using network Socket",
        rules=("RK120",),
    ),
    Signature(
        name="noise-net-plugin",
        pattern=r"No plugin found \(libnccl-net|Failed to open libnccl-net|NET/Plugin: Could not find",
        level=NOISE,
        what="NCCL found no network plug-in",
        cause="this is bad on Slingshot and EFA only",
        fix="load the site's aws-ofi-nccl",
        example=(
            "node01:12:12 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using "
            "internal implementation"
        ),
    ),
)
