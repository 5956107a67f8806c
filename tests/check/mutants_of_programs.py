"""Mistakes that are put into correct programs of the corpus by a small edit."""

from __future__ import annotations

# File, what is replaced, by what, and the rule that has to find it.
PROGRAM_MUTANTS = [
    (
        "prog-srun/train.py",
        "    dist.barrier()\n",
        "    try:\n        dist.barrier()\n    except Exception:\n        pass\n",
        "RK220",
    ),
    ("prog-srun/train.py", "1).cuda(), device_ids=[local_rank])", "1)).cuda()", "RK221"),
    ("prog-srun/train.py", "model.module.state_dict()", "model.state_dict()", "RK409"),
    (
        "prog-class/train.py",
        'self.path + ".new")\n        os.rename(self.path + ".new", self.path)',
        "self.path)",
        "RK410",
    ),
    (
        "prog-split/train.py",
        """        right = (model(images.to(device)).argmax(1) == labels.to(device)).sum()
        sums += torch.stack([right.float(), torch.tensor(float(len(labels)), device=device)])
    dist.all_reduce(sums)
    model.train()
    return (sums[0] / sums[1]).item()
""",
        """        sums += torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
    dist.all_reduce(sums)
    model.train()
    return sums.item()
""",
        "RK513",
    ),
    (
        "job-slurm-srun-python/train.py",
        "DistributedSampler(images, shuffle=True)",
        "DistributedSampler(images, num_replicas=world_size, rank=local_rank, shuffle=True)",
        "RK218",
    ),
    (
        "prog-srun/train.py",
        "    for epoch in range(20):\n",
        """    import signal

    def on_signal(number, frame):
        on_signal.came = True

    on_signal.came = False
    signal.signal(signal.SIGUSR1, on_signal)
    for epoch in range(20):
        if on_signal.came:
            break
""",
        "RK219",
    ),
    (
        "prog-fsdp/train.py",
        "model.clip_grad_norm_(1.0)",
        "nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "RK507",
    ),
    ("prog-ddp/train.py", "        optimizer.zero_grad(set_to_none=True)\n", "", "RK508"),
    ("prog-ddp/train.py", "cross_entropy(model(images", "cross_entropy(model.module(images", "RK509"),
    (
        "prog-ddp/train.py",
        """        scaler.step(optimizer)
        scaler.update()
""",
        """        if loader.batch_sampler.done % 4 == 0:
            scaler.step(optimizer)
            scaler.update()
""",
        "RK510",
    ),
    (
        "prog-ddp/train.py",
        """    model = DDP(resnet18(num_classes=100).to(device), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
""",
        """    model = resnet18(num_classes=100).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.distributed.fsdp.fully_shard(model)
""",
        "RK511",
    ),
    ("prog-ddp/train.py", "scaler.step(optimizer)", "optimizer.step()", "RK512"),
    (
        "prog-ddp/train.py",
        "    start = load_snapshot(args.snapshot, model, optimizer, scaler)\n",
        """    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "first.pt")
    model.module.load_state_dict(torch.load("first.pt", map_location=device))
    start = load_snapshot(args.snapshot, model, optimizer, scaler)
""",
        "RK407",
    ),
    (
        "prog-ddp/train.py",
        "    start = load_snapshot(",
        "    start = 0\n    if dist.get_rank() == 0:\n        start = load_snapshot(",
        "RK408",
    ),
    ("prog-ddp/train.py", "        scaler.step(optimizer)\n", "        scaler.step(optimizer\n", "RK200"),
    (
        "prog-ddp/train.py",
        'local_rank = int(os.environ["LOCAL_RANK"])',
        "local_rank = dist.get_rank()",
        "RK201",
    ),
    ("prog-srun/train.py", 'os.environ["SLURM_LOCALID"]', 'os.environ["SLURM_PROCID"]', "RK201"),
    (
        "prog-fsdp/train.py",
        "device = dist.get_rank() % torch.cuda.device_count()",
        "device = dist.get_rank()",
        "RK201",
    ),
    ("prog-fsdp/train.py", "    torch.cuda.set_device(device)\n", "", "RK202"),
    (
        "prog-ddp/train.py",
        "set_device(local_rank)",
        'set_device(int(os.environ["CUDA_VISIBLE_DEVICES"].split(",")[local_rank]))',
        "RK203",
    ),
    ("prog-srun/train.py", 'world_size = int(os.environ["SLURM_NTASKS"])', "world_size = 8", "RK204"),
    (
        "prog-single/train.py",
        "torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10)).to(device)",
        "torch.nn.DataParallel(torch.nn.Linear(3072, 10)).to(device)",
        "RK205",
    ),
    (
        "prog-spawn/train.py",
        "DDP(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)).to(rank), device_ids=[rank])",
        "torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)).to(rank)",
        "RK509",
    ),
    (
        "prog-ddp/train.py",
        "    dist.all_reduce(sums)\n",
        "    if dist.get_rank() == 0:\n        dist.all_reduce(sums)\n",
        "RK207",
    ),
    ("prog-ddp/train.py", "        dist.barrier()\n", "            dist.barrier()\n", "RK207"),
    (
        "prog-class/train.py",
        "            dist.broadcast_object_list",
        "            if self.is_first:\n                dist.broadcast_object_list",
        "RK207",
    ),
    (
        "prog-class/train.py",
        "        if self.is_first:\n            dist.barrier()\n        return",
        "        return",
        "RK207",
    ),
    (
        "prog-accelerate/train.py",
        "        accelerator.wait_for_everyone()\n",
        "        if accelerator.is_main_process:\n            accelerator.wait_for_everyone()\n",
        "RK207",
    ),
    (
        "prog-deepspeed/train.py",
        "        engine.save_checkpoint(",
        "        if torch.distributed.get_rank() == 0:\n            engine.save_checkpoint(",
        "RK207",
    ),
    (
        "prog-ddp/train.py",
        "        accuracy = evaluate(model.module, valid, device)\n",
        "        accuracy = evaluate(model.module, valid, device)\n        if dist.get_rank() == 0:\n            model(torch.ones(1, 3, 224, 224))\n",
        "RK207",
    ),
    (
        "prog-class/train.py",
        "        return total.item() /",
        "        while total > 100:\n            total = total / 2\n        return total.item() /",
        "RK209",
    ),
    (
        "prog-fsdp/train.py",
        "        state = model.state_dict()\n",
        "        if is_main():\n            state = model.state_dict()\n",
        "RK207",
    ),
    ("prog-ddp/train.py", "    dist.destroy_process_group()\n", "", "RK211"),
    (
        "prog-ddp/train.py",
        "device_ids=[local_rank])",
        "device_ids=[local_rank], find_unused_parameters=True)",
        "RK212",
    ),
    (
        "prog-ddp/train.py",
        "    dist.init_process_group(",
        '    os.environ["CUDA_VISIBLE_DEVICES"] = "0,1,2,3"\n    dist.init_process_group(',
        "RK213",
    ),
    (
        "prog-ddp/train.py",
        "DDP(resnet18(num_classes=100).to(device), device_ids=",
        "DDP(resnet18(num_classes=100).to(device), gpu_ids=",
        "RK217",
    ),
    (
        "prog-fsdp/train.py",
        "dist.get_rank() % torch.cuda.device_count()",
        "[0, 1, 2, 3][dist.get_rank()]",
        "RK201",
    ),
    ("prog-srun/train.py", "env://", "file:///scratch/rendezvous", "RK216"),
    ("prog-ddp/train.py", 'init_process_group("nccl")', 'init_proces_group("nccl")', "RK217"),
    ("prog-ddp/data.py", "sampler=DistributedSampler(train)", "shuffle=True", "RK301"),
    ("prog-ddp/train.py", "        train.sampler.set_epoch(epoch)\n", "", "RK302"),
    ("prog-srun/train.py", "        sampler.set_epoch(epoch)\n", "", "RK302"),
    ("prog-srun/train.py", "sampler.set_epoch(epoch)", "sampler.set_epoch(0)", "RK302"),
    ("prog-spawn/train.py", "        sampler.set_epoch(epoch)\n", "", "RK302"),
    ("prog-class/train.py", "            self.sampler.set_epoch(epoch)\n", "", "RK302"),
    (
        "prog-srun/train.py",
        "batch_size=64, sampler=sampler",
        "batch_size=64, shuffle=True, sampler=sampler",
        "RK303",
    ),
    (
        "prog-ddp/data.py",
        "DataLoader(part, batch_size,",
        "DataLoader(valid, batch_size, sampler=DistributedSampler(valid, shuffle=False),",
        "RK304",
    ),
    (
        "prog-split/train.py",
        "    part = Subset(valid, range(rank, len(valid), world_size))\n    valid_loader = DataLoader(part, 256,",
        "    valid_loader = DataLoader(valid, 256, sampler=DistributedSampler(valid, shuffle=False),",
        "RK304",
    ),
    (
        "prog-fsdp/train.py",
        "DataLoader(data, batch_size=4, sampler=sampler, num_workers=2)",
        "DataLoader(\n        torch.utils.data.Subset(data, range(dist.get_rank(), len(data), dist.get_world_size())), 4\n    )",
        "RK305",
    ),
    (
        "prog-class/train.py",
        "        if not self.is_first:\n            dist.barrier()\n        data",
        "        data",
        "RK306",
    ),
    (
        "prog-ddp/train.py",
        "    dist.init_process_group(",
        "    rank = dist.get_rank() if dist.is_initialized() else 0\n    dist.init_process_group(",
        "RK307",
    ),
    ("prog-split/train.py", ", generator=torch.Generator().manual_seed(0)", "", "RK309"),
    (
        "prog-srun/train.py",
        "    generator = torch.Generator().manual_seed(1)\n    x = torch.randn(4096, 16, generator=generator)",
        "    x = torch.randn(4096, 16)",
        "RK309",
    ),
    ("prog-spawn/train.py", "rank=rank)\n    loader", "rank=rank, shuffle=False)\n    loader", "RK311"),
    ("prog-accelerate/train.py", "batch_size=64, shuffle=True", "batch_size=64", "RK311"),
    (
        "prog-class/train.py",
        "        dist.reduce(total",
        "        print(len(next(iter(self.loader))[0]))\n        dist.reduce(total",
        "RK312",
    ),
    (
        "prog-class/train.py",
        "        data = datasets",
        '        datasets.MNIST.mirrors = ["http://yann.lecun.com/exdb/mnist/"]\n        data = datasets',
        "RK313",
    ),
    ("prog-fsdp/train.py", "2 * len(loader)", "2 * len(data) // 4", "RK314"),
    (
        "prog-class/train.py",
        "        dist.reduce(total, dst=0)\n        return total.item() / len(self.loader) / dist.get_world_size()",
        "        return total.item() / len(self.loader.dataset)",
        "RK504",
    ),
    (
        "prog-class/train.py",
        "        dist.reduce(total, dst=0)\n        return total.item() / len(self.loader) / dist.get_world_size()",
        "        return total.item() / len(self.data)",
        "RK504",
    ),
    ("prog-ddp/data.py", "DataLoader(part,", "DataLoader(valid,", "RK316"),
    ("prog-split/train.py", "DataLoader(part,", "DataLoader(valid,", "RK316"),
    (
        "prog-srun/train.py",
        '    if rank == 0:\n        torch.save(model.module.state_dict(), "line.pt")',
        '    torch.save(model.module.state_dict(), "line.pt")',
        "RK401",
    ),
    (
        "prog-spawn/train.py",
        '    if rank == 0:\n        torch.save(model.module.state_dict(), "digits.pt")',
        '    torch.save(model.module.state_dict(), "digits.pt")',
        "RK401",
    ),
    ("prog-ddp/snapshots.py", ', map_location="cpu", weights_only=True', "", "RK402"),
    ("prog-class/train.py", ', map_location=f"cuda:{self.local_rank}"', "", "RK402"),
    ("prog-class/train.py", '"epoch": epoch + 1,', '"epoch": epoch,', "RK403"),
    ("prog-class/train.py", '            "optimizer": self.optimizer.state_dict(),\n', "", "RK404"),
    (
        "prog-class/train.py",
        'self.path + ".new")\n        os.rename(self.path + ".new", self.path)',
        "self.path)",
        "RK405",
    ),
    ("prog-class/train.py", "        return self.rank == 0", "        return self.local_rank == 0", "RK401"),
    ("prog-ddp/train.py", "        scaler.unscale_(optimizer)\n", "", "RK501"),
    (
        "prog-ddp/train.py",
        "        scaler.unscale_(optimizer)\n        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
        "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n        scaler.unscale_(optimizer)\n",
        "RK501",
    ),
    ("prog-srun/train.py", "lr=0.01 * world_size", "lr=0.01", "RK502"),
    ("prog-split/train.py", "args.batch_size // world_size", "args.batch_size", "RK503"),
    ("prog-split/train.py", "    dist.all_reduce(sums)\n", "", "RK504"),
    ("prog-srun/train.py", "F.mse_loss(", "F.cross_entropy(", "RK505"),
    ("prog-ddp/train.py", 'torch.amp.GradScaler("cuda")', "torch.cuda.amp.GradScaler()", "RK506"),
    ("prog-scaling/train.py", "        torch.cuda.synchronize()\n", "", "RK601"),
    ("prog-scaling/job.sh", "=1 train.py --precision bf16", "=1 train.py --precision fp32", "RK602"),
    (
        "prog-scaling/train.py",
        "    torch.backends",
        "    if dist.get_world_size() > 1:\n        torch.backends",
        "RK602",
    ),
    ("prog-ddp/train.py", "device_ids=[local_rank])", "device_ids=[local_rank], bucket_cap_mb=1)", "RK212"),
]
