"""Tables as tutorials, readmes and papers print them, with numbers of our own.

name → (suffix, text, codes of errors, codes of warnings). An honest table has no error.
"""

from __future__ import annotations

# ruff: noqa: E501 (tables are as wide as they are)

HONEST: dict[str, tuple[str, str, set[str]]] = {
    "LaTeX, with rules and symbols": (
        ".tex",
        r"""\section{Scaling}
\begin{table}[t]
  \caption{Strong scaling. Speedup is relative to a single node.}  % 100 %
  \begin{tabular*}{0.8\textwidth}{@{}lrrr@{}}
    \toprule
    \textbf{Nodes} & Time (s) & Speedup & Efficiency \\
    \midrule
    1     & $1{,}024.2 \pm 3$ & 1.0$\times$   & 100\% \\ \addlinespace
    16    & 68.4     & 15.0$\times$  & 93\% \\[2pt]
    64    & 17.8     & \textbf{57.5}$\times$  & 90\% \\
    \bottomrule
  \end{tabular*}
\end{table}
""",
        set(),
    ),
    "LaTeX: models above columns": (
        ".tex",
        r"""\begin{tabular}{l|rr|rr}
\toprule
 & \multicolumn{2}{c|}{ResNet-50} & \multicolumn{2}{c}{BERT} \\
\cmidrule(lr){2-3}\cmidrule(lr){4-5}
GPUs & Time (s) & Speedup & Time (s) & Speedup \\
\midrule
1 & 1\,000 & 1.0 & 2\,000 & 1.0 \\
4 & 260 & 3.8 & 530 & 3.8 \\
\bottomrule
\end{tabular}
""",
        set(),
    ),
    "LaTeX: a model beside several rows": (
        ".tex",
        r"""\begin{tabular}{llrr}
\hline
Model & GPUs & Throughput (images/s) & Efficiency \\ \hline
\multirow{2}{*}{ResNet-50} & 1 & 367 & 100\% \\
 & 8 & 2{,}888 & 98.4\% \\ \hline
\multirow{2}{*}{VGG-16} & 1 & 233 & 100\% \\
 & 8 & 1{,}701 & 91.3\% \\ \hline
\end{tabular}
""",
        set(),
    ),
    "html: a model beside several rows": (
        ".html",
        """<table>
<tr><th>Model</th><th>GPUs</th><th>Throughput (img/s)</th><th>Speedup</th></tr>
<tr><td rowspan="2">ResNet-50</td><td>1</td><td>1,250</td><td>1.00</td></tr>
<tr><td>8</td><td>9,350</td><td>7.48</td></tr>
<tr><td rowspan="2">VGG-16</td><td>1</td><td>410</td><td>1.00</td></tr>
<tr><td>8</td><td>2,300</td><td>5.61</td></tr>
</table>
""",
        set(),
    ),
    "html: a page": (
        ".html",
        """<html><head><style>td { padding: 1px }</style></head><body>
<h1 class="t">Scaling</h1><p>Written as <code>&lt;table&gt;</code>.</p>
<h2>Weak scaling</h2>
<div class="wrapper"><table><tbody><tr><th>GPUs</th><th>Time [s]</th><th>Efficiency</th></tr>
<tr><td>1</td><td>100,3</td><td>100 %</td></tr><tr><td>4</td><td>105,0</td><td>96 %</td></tr></tbody></table></div>
</body></html>
""",
        set(),
    ),
    "html: a header of two rows": (
        ".md",
        """<table>
<thead><tr><th rowspan="2">GPUs</th><th colspan="2">FP32</th><th colspan="2">AMP</th></tr>
<tr><th>img/s</th><th>speedup</th><th>img/s</th><th>speedup</th></tr></thead>
<tr><td>1</td><td>367.29</td><td>1.0</td><td>802.9</td><td>1.0</td></tr>
<tr><td>8</td><td>2887.65</td><td>7.86</td><td>6154.66</td><td>7.67</td></tr>
</table>
""",
        set(),
    ),
    "reStructuredText grid whose header spans": (
        ".rst",
        """Scaling
=======

+-------+---------------------------+
|       | ResNet-50                 |
+ GPUs  +----------------+----------+
|       | Time (s)       | Speedup  |
+=======+================+==========+
| 1     | 1,234.5        | 1.0      |
+-------+----------------+----------+
| 4     | 330.1          | 3.74     |
+-------+----------------+----------+
""",
        set(),
    ),
    "nodes with their GPUs in brackets": (
        ".md",
        """
| Nodes (GPUs) | Time per epoch (s) | Speedup |
|---|---|---|
| 1 (4) | 250 | 1.0 |
| 4 (16) | 70 | 3.57 |
""",
        {"baseline-missing"},
    ),
    "thousands of GPUs, the largest first": (
        ".md",
        """
| Platform | Nodes | GPUs | Time-to-train |
|---|---|---|---|
| NVL72 | 2,048 | 8,192 | 2.02 min |
| NVL72 | 512 | 2,048 | 5.54 min |
""",
        set(),
    ),
    "millions of tokens": (
        ".md",
        """
| GPUs | Tokens/s | Scaling efficiency |
|---|---|---|
| 8 | 160k | 100% |
| 64 | 1.15M | 90% |
""",
        set(),
    ),
    "weak scaling told by a header, times of steps": (
        ".md",
        """
| #GPUs | GBS | iter (ms) | weak-scaling eff. |
|---|---|---|---|
| 1 | 128 | 11374 | 100.0% |
| 2 | 256 | 11446 | 99.4% |
| 4 | 512 | 11634 | 97.8% |
""",
        set(),
    ),
    "a serial program, its own kind": (
        ".md",
        """
| Mode | processes | Time (s) | Speedup |
|---|---|---|---|
| seq | 1 | 0.0250 | 1.00 |
| mpi | 2 | 0.0135 | 1.85 |
| mpi | 4 | 0.0130 | 1.92 |
""",
        set(),
    ),
    "parallel runs named by their number": (
        ".md",
        """
| Configuration | Time (s) | Speedup |
|---|---|---|
| Serial (1) | 75.25 | 1.000 |
| Parallel 2 | 45.96 | 1.637 |
| Parallel 4 | 39.02 | 1.928 |
""",
        set(),
    ),
    "named by their commands": (
        ".md",
        """
| Command | Time |
|---|---|
| `torchrun --nproc_per_node=2 train.py` | 53 s |
| `torchrun --nnodes=2 --nproc_per_node=4 train.py` | 15 s |
""",
        set(),
    ),
    "time saved in percent": (
        ".md",
        """
| GPUs | Time (s) | Faster |
|---|---|---|
| 1 | 100 | - |
| 2 | 55 | 45% |
| 4 | 30 | 70% |
""",
        set(),
    ),
    "a standard deviation is not a time": (
        ".md",
        """
| GPUs | Time (s) | SD (s) | Speedup |
|---|---|---|---|
| 1 | 100.0 | 0.5 | 1.00 |
| 4 | 27.0 | 0.4 | 3.70 |
""",
        set(),
    ),
    "the same GPU, written in several ways": (
        ".md",
        """
| Hardware | Time per epoch | Speedup |
|---|---|---|
| 1x A100-80GB | 400 s | 1.0x |
| 4x A100 (80 GB, NVLink) | 105 s | 3.8x |
""",
        set(),
    ),
    "the same model, run in several ways": (
        ".md",
        """
| Model | GPUs | Time (s) | Speedup |
|---|---|---|---|
| ResNet-50 (baseline) | 1 | 100 | 1.0 |
| ResNet-50 (DDP) | 4 | 26 | 3.8 |
""",
        set(),
    ),
    "a sentence that its page confirms": (
        ".md",
        "- 1 GPU: 120 s per epoch\n- 4 GPUs: 45 s per epoch\n\nThat is a speed-up of 2.7x on 4 GPUs.\n",
        set(),
    ),
    "a sentence that its page does not confirm": (
        ".md",
        "- 1 GPU: 120 s per epoch\n- 4 GPUs: 45 s per epoch\n\nThat is a speed-up of 3.8x on 4 GPUs.\n",
        {"wrong-ratio"},
    ),
    "markdown, strong scaling with ratios": (
        ".md",
        """
# ResNet-18 on our cluster
All runs in fp32 with a global batch size of 256; the numbers are the median of 5 runs.

| GPUs | Time (s) | Speedup | Efficiency |
|-----:|---------:|--------:|-----------:|
| 1    | 400.2    | 1.00    | 100 %      |
| 2    | 208.1    | 1.92    | 96 %       |
| 4    | 109.9    | 3.64    | 91 %       |
""",
        set(),
    ),
    "columns in another order, bold, units in cells": (
        ".md",
        """
| Efficiency | Training time | **Speed-up** | Setup |
|---|---|---|---|
| 1.0  | **1h 12m** | 1x | single GPU |
| 0.95 | 38 min | 1.9x | 2 GPUs |
| 0.90 | 20 min | **3.6x** ✅ | 4 GPUs |
""",
        set(),
    ),
    "weak scaling by rates, nodes times GPUs per node": (
        ".md",
        """
## FP32
batch_size_per_device = 128

| node_num | gpu_num_per_node | batch_size_per_device | throughput(img/s) | speedup |
| --- | --- | --- | --- | --- |
| 1 | 1 | 128 | 361.4 | 1.00 |
| 1 | 4 | 128 | 1401.7 | 3.88 |
| 1 | 8 | 128 | 2781.1 | 7.70 |
| 2 | 8 | 128 | 5460.2 | 15.11 |
| 4 | 8 | 128 | 10570.9 | 29.25 |
""",
        set(),
    ),
    "a precision for each column": (
        ".md",
        """
##### Training performance (8x A100)

| **GPUs** | **Throughput - TF32** | **Throughput - mixed precision** | **Throughput speedup (TF32 to mixed precision)** | **TF32 Strong Scaling** | **Mixed Precision Strong Scaling** | **Mixed Precision Training Time (90E)** | **TF32 Training Time (90E)** |
|:--:|:--:|:--:|:--:|:--:|:--:|:--:|:--:|
| 1 | 930 img/s | 2450 img/s | 2.63 x | 1.0 x | 1.0 x | ~14 hours | ~36 hours |
| 8 | 7180 img/s | 16480 img/s | 2.30 x | 7.72 x | 6.73 x | ~2 hours | ~5 hours |
""",
        set(),
    ),
    "a grid of precisions, each with its own baseline": (
        ".md",
        """
| Precision | #GPUs | images/s | speed-up |
|---|---|---|---|
| fp32 | 1 | 350 | 1.0 |
| fp32 | 8 | 2650 | 7.6 |
| bf16 | 1 | 1100 | 1.0 |
| bf16 | 8 | 7900 | 7.2 |
""",
        set(),
    ),
    "html with spans of columns": (
        ".md",
        """
<table>
<thead><tr><th>Number of GPUs</th><th>Epoch time [s]</th><th>Parallel efficiency (%)</th></tr></thead>
<tbody>
<tr><td>1</td><td>61.2</td><td>100</td></tr>
<tr><td>2</td><td>32.0</td><td>95.6</td></tr>
<tr><td>4</td><td>17.1</td><td>89.5</td></tr>
</tbody></table>
""",
        set(),
    ),
    "reStructuredText grid": (
        ".rst",
        """
Scaling
=======

+-------+------+--------------+---------+
| Nodes | GPUs | Run time     | Speedup |
+=======+======+==============+=========+
| 1     | 1    | 1:02:33      | 1.00    |
+-------+------+--------------+---------+
| 1     | 4    | 0:16:40      | 3.75    |
+-------+------+--------------+---------+
| 2     | 8    | 0:08:55      | 7.01    |
+-------+------+--------------+---------+
""",
        set(),
    ),
    "reStructuredText simple table": (
        ".rst",
        """
Results
-------

====== ============ ========
GPUs   Samples/sec  Speedup
====== ============ ========
1      512.3        1.0
2      1001.2       1.95
4      1915.0       3.74
====== ============ ========
""",
        set(),
    ),
    "a list-table of a Sphinx page": (
        ".rst",
        """
.. list-table:: Strong scaling
   :header-rows: 1

   * - GPUs
     - Time [min]
     - Speedup
   * - 1
     - 120
     - 1.0
   * - 2
     - 62
     - 1.94
""",
        set(),
    ),
    "csv with snake case": (
        ".csv",
        "world_size,precision,global_batch,train_time_s,test_acc\n1,bf16,512,803.1,0.912\n2,bf16,512,420.9,0.911\n4,bf16,512,221.3,0.913\n",
        set(),
    ),
    "csv with semicolons and decimal commas": (".csv", "GPUs;Time (s)\n1;100,5\n2;52,3\n4;27,9\n", set()),
    "turned: devices in the header": (
        ".md",
        """
| | 1 GPU | 2 GPUs | 4 GPUs | 8 GPUs |
|---|---|---|---|---|
| Throughput (tokens/s) | 10,250 | 20,100 | 39,500 | 76,800 |
| Scaling efficiency | 100% | 98% | 96% | 94% |
""",
        set(),
    ),
    "turned: models in rows, the quantity in the caption": (
        ".md",
        """
Throughput in images/s:

| Model | 1 GPU | 4 GPUs | 8 GPUs |
|---|---|---|---|
| ResNet-50 | 380 | 1490 | 2900 |
| VGG-16 | 210 | 760 | 1390 |
""",
        set(),
    ),
    "several models in one table": (
        ".md",
        """
| Model | GPUs | Epoch time (s) | Speedup |
|---|---|---|---|
| ResNet-18 | 1 | 100 | 1.0 |
| ResNet-18 | 4 | 28 | 3.6 |
| ViT-B | 1 | 400 | 1.0 |
| ViT-B | 4 | 104 | 3.8 |
""",
        set(),
    ),
    "cpu beside gpus": (
        ".md",
        """
| Configuration | Wall time (s) | Speed up |
|---|---|---|
| 40 CPU cores | 235 | 1x |
| 1 GPU | 60 | 3.9x |
| 2 GPUs | 33 | 7.1x |
""",
        set(),
    ),
    "ratios only": (
        ".md",
        "\n| GPUs | Speedup |\n|---|---|\n| 1 | 1.0x |\n| 2 | 1.9x |\n| 4 | 3.7x |\n",
        set(),
    ),
    "an optimisation list is not scaling": (
        ".md",
        """
| Method | GPUs | Time (s) | Speedup vs. PyTorch |
|---|---|---|---|
| ours | 4 | 20 | 6.0x |
| ours | 8 | 11 | 6.2x |
""",
        set(),
    ),
    "larger batches to the same accuracy": (
        ".md",
        """
CIFAR-10, batch size 128 per GPU, mean of 3 runs.

| GPUs | Training time (s) | Test accuracy |
|---|---|---|
| 1 | 610 | 93.1% |
| 4 | 168 | 93.0% |
""",
        {"unequal-global-batch"},
    ),
    "slightly superlinear": (
        ".md",
        "\n| GPUs | samples/s |\n|---|---|\n| 1 | 245.0 |\n| 4 | 1035.3 |\n",
        {"superlinear"},
    ),
    "a table in a code block": (
        ".md",
        """
```
GPUs    time [s]    speedup
1       88.1        1.00
2       45.9        1.92
4       24.8        3.55
```
""",
        set(),
    ),
    "the heading tells the precision, other sections another": (
        ".md",
        """
# Benchmarks
## FP32
With 1 GPU in fp32 we began.

| GPUs | img/s |
|---|---|
| 1 | 300 |
| 8 | 2300 |

## AMP

| GPUs | img/s |
|---|---|
| 1 | 900 |
| 8 | 6500 |
""",
        set(),
    ),
    "baseline of eight GPUs": (
        ".md",
        "\n| GPUs | Time (h) | Speedup |\n|---|---|---|\n| 8 | 40.0 | 1.0 |\n| 16 | 20.8 | 1.92 |\n| 32 | 11.1 | 3.6 |\n",
        {"baseline-missing"},
    ),
    "weak scaling by time": (
        ".md",
        """
### Weak scaling
32 images per GPU.

| GPUs | Time per epoch [s] | Efficiency |
|---|---|---|
| 1 | 50.0 | 100 % |
| 2 | 51.2 | 98 % |
| 4 | 54.1 | 92 % |
""",
        set(),
    ),
}

HONEST |= {
    "points for thousands, decimal commas": (
        ".md",
        """| GPU | Zeit (s) | Beschleunigung |
|---|---|---|
| 1 | 1.234,5 | 1,00 |
| 2 | 640,125 | 1,93 |
| 4 | 330,2 | 3,74 |
""",
        set(),
    ),
    "CSV with three decimals after a comma, and thousands without decimals": (
        ".csv",
        "GPUs;Laufzeit (s);Speedup\n1;1.234;1,000\n2;642,708;1,920\n4;338,1;3,650\n",
        set(),
    ),
    "a speed-up in percent": (
        ".md",
        """| GPUs | Runtime | Speedup |
|---|---|---|
| 1 | 100 s | 100% |
| 2 | 55 s | 182% |
| 4 | 30 s | 333% |
""",
        set(),
    ),
    "a gain in percent, not a ratio": (
        ".md",
        """| GPUs | Runtime | Speedup |
|---|---|---|
| 1 | 100 s | 0% |
| 2 | 55 s | +82% |
""",
        set(),
    ),
    "a file that is a data frame as pandas prints it": (
        ".txt",
        """   gpus  runtime_s  speedup
0     1     200.00     1.00
1     2     104.20     1.92
""",
        set(),
    ),
    "an efficiency in brackets behind each speed-up": (
        ".md",
        "| GPUs | Time | Speedup (efficiency) |\n|---|---|---|\n| 1 | 100 s | 1.0x |\n"
        "| 2 | 52 s | 1.92x (96%) |\n| 4 | 27 s | 3.70x (93%) |\n",
        set(),
    ),
    "a speed-up in brackets behind each time": (
        ".md",
        "| GPUs | Time (speedup) |\n|---|---|\n| 1 | 100 s (1.0x) |\n| 4 | 27 s (3.7x) |\n",
        set(),
    ),
    "milliseconds of a step": (
        ".md",
        """| GPUs | ms/step | speedup |
|---|---|---|
| 1 | 250 | 1 |
| 2 | 130 | 1.92 |
""",
        set(),
    ),
}

UNFAIR: dict[str, tuple[str, str, set[str]]] = {
    "a wrong efficiency in brackets": (
        ".md",
        "| GPUs | Time | Speedup |\n|---|---|---|\n| 1 | 100 s | 1.0x (100%) |\n| 4 | 27 s | 3.70x (60%) |\n",
        {"wrong-ratio"},
    ),
    "a wrong speed-up in brackets": (
        ".md",
        "| GPUs | Time (speedup) |\n|---|---|\n| 1 | 100 s (1.0x) |\n| 4 | 40 s (3.7x) |\n",
        {"wrong-ratio"},
    ),
    "decimal commas": (
        ".md",
        "| GPU | Zeit (s) | Beschleunigung |\n|---|---|---|\n| 1 | 1.234,5 | 1,00 |\n| 4 | 330,2 | 5,74 |\n",
        {"wrong-ratio"},
    ),
    "a speed-up in percent that does not follow": (
        ".md",
        "| GPUs | Runtime | Speedup |\n|---|---|---|\n| 1 | 100 s | 100% |\n| 4 | 30 s | 395% |\n",
        {"wrong-ratio"},
    ),
    "a data frame as pandas prints it": (
        ".txt",
        "   gpus  runtime_s  speedup\n0     1     200.00     1.00\n1     4     80.00     3.92\n",
        {"wrong-ratio"},
    ),
    "milliseconds of a step": (
        ".md",
        "| GPUs | ms/step | speedup |\n|---|---|---|\n| 1 | 250 | 1 |\n| 2 | 140 | 1.99 |\n",
        {"wrong-ratio"},
    ),
    "LaTeX: two precisions": (
        ".tex",
        r"""\begin{tabular}{|l|c|c|c|}
\hline
\textbf{GPUs} & \textbf{Precision} & \textbf{Time (s)} & \textbf{Speedup} \\ \hline
1 & FP32 & 73.48 & 1.0$\times$ \\ \hline
4 & AMP & 22.10 & 3.3$\times$ \\ \hline
\end{tabular}
""",
        {"unequal-precision"},
    ),
    "LaTeX in a code block of a page": (
        ".md",
        r"""```latex
\begin{tabular}{lrr}
GPUs & Time (s) & Speedup \\
1 & 100.0 & 1.0 \\
4 & 40.0 & 3.9 \\
\end{tabular}
```
""",
        {"wrong-ratio"},
    ),
    "html: a ratio across the columns of a header of two rows": (
        ".md",
        """<table>
<thead><tr><th rowspan="2">GPUs</th><th colspan="2">FP32</th><th colspan="2">AMP</th></tr>
<tr><th>img/s</th><th>speedup</th><th>img/s</th><th>speedup</th></tr></thead>
<tr><td>1</td><td>367.29</td><td>1.0</td><td>802.9</td><td>1.0</td></tr>
<tr><td>8</td><td>2887.65</td><td>7.86</td><td>6154.66</td><td>16.76</td></tr>
</table>
""",
        {"wrong-ratio"},
    ),
    **{
        f"another {what}": (
            ".md",
            f"| {header} | GPUs | Time (s) | Speedup |\n|---|---|---|---|\n"
            f"| {before} | 1 | 100 | 1.0 |\n| {after} | 4 | 26 | 3.8 |\n",
            {"unequal-setup"},
        )
        for what, header, before, after in (
            ("GPU", "GPU type", "V100", "A100"),
            ("model", "Model", "ResNet-50", "ResNet-18"),
            ("input size", "Image size", "224", "128"),
            ("compiler", "torch.compile", "no", "yes"),
            ("data set", "Training samples", "60,000", "15,000"),
        )
    },
    "GPUs of two kinds, in the names": (
        ".md",
        """
| Hardware | Time | Speedup |
|---|---|---|
| 1× V100 | 400 s | 1.0x |
| 4× A100 | 105 s | 3.8x |
""",
        {"unequal-setup"},
    ),
    "sequences of another length, by rates": (
        ".md",
        """
| GPUs | Sequence length | Tokens/s | Speedup |
|---|---|---|---|
| 8 | 8192 | 100k | 1.0 |
| 32 | 2048 | 380k | 3.8 |
""",
        {"unequal-setup"},
    ),
    "the tutorial: fp32 baseline, the others in mixed precision": (
        ".md",
        """
# Multi-GPU training
The table has one baseline in fp32 and the others in mixed precision.

| Configuration | Time | Speedup | Efficiency |
|---|---|---|---|
| 1 GPU | 73.48 s | 1.0 | 100 % |
| 2 GPUs | 9.81 s | 7.5 | 374 % |
| 4 GPUs | 4.83 s | 15.2 | 380 % |
""",
        {"unequal-precision", "superlinear"},
    ),
    "precision in the column of configurations": (
        ".md",
        "\n| Run | Total time |\n|---|---|\n| 1 GPU, fp32 | 73.48 s |\n| 4 GPUs, AMP | 20.1 s |\n",
        {"unequal-precision"},
    ),
    "precision in the header of a turned table": (
        ".md",
        "\n| | 1 GPU (FP32) | 4 GPUs (BF16) |\n|---|---|---|\n| Time (s) | 200 | 60 |\n",
        {"unequal-precision"},
    ),
    "precision told by sections with their code": (
        ".md",
        """
# Guide
## Single GPU
```python
for x, y in loader:
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
```
## Multi-GPU
```python
model = DDP(model)
for x, y in loader:
    with torch.autocast("cuda"):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
```
## Results

| Setup | Throughput | Speedup |
|---|---|---|
| Single GPU | ~5,000 img/s | 1x |
| 4 GPUs on 1 node | ~17,000 img/s | 3.4x |
""",
        {"unequal-precision"},
    ),
    "a column AMP": (
        ".csv",
        "gpus,amp,epoch_time\n1,no,60\n2,yes,21\n4,yes,12\n",
        {"unequal-precision", "superlinear"},
    ),
    "a sentence": (
        ".md",
        "\nWith 4 GPUs and FP16, the throughput increased from ~5,000 images/second (single GPU) to ~37,000 "
        "images/second, a 7x speedup.\n",
        {"superlinear"},
    ),
    "wrong arithmetic": (
        ".md",
        "\n| GPUs | Time (s) | Speedup |\n|---|---|---|\n| 1 | 100.0 | 1.0 |\n| 2 | 60.0 | 1.9 |\n| 4 | 35.0 | 3.8 |\n",
        {"wrong-ratio"},
    ),
    "wrong efficiency": (
        ".md",
        "\n| GPUs | Time (s) | Efficiency |\n|---|---|---|\n| 1 | 100.0 | 100 % |\n| 4 | 40.0 | 95 % |\n",
        {"wrong-ratio"},
    ),
    "efficiency above what GPUs can bring": (
        ".md",
        "\n| GPUs | Time (s) |\n|---|---|\n| 1 | 152 |\n| 4 | 10 |\n",
        {"superlinear"},
    ),
    "times of different global batches": (
        ".md",
        "\nBatch size of 64 per GPU.\n\n| GPUs | Total training time (min) |\n|---|---|\n| 1 | 80 |\n| 2 | 42 |\n| 4 | 22 |\n",
        {"unequal-global-batch"},
    ),
    "a column of batch sizes": (
        ".md",
        "\n| # GPUs | Batch size | Training time (s) |\n|---|---|---|\n| 1 | 256 | 100 |\n| 4 | 1024 | 27 |\n",
        {"unequal-global-batch"},
    ),
    "accuracy lost": (
        ".md",
        "\nCIFAR-10, global batch 512.\n\n| GPUs | Time (s) | Accuracy (%) |\n|---|---|---|\n| 1 | 300 | 94.1 |\n| 8 | 45 | 88.0 |\n",
        {"accuracy-differs"},
    ),
    "other epochs": (
        ".csv",
        "GPUs,epochs,total time (s)\n1,90,9000\n4,30,800\n",
        {"unequal-epochs", "superlinear"},
    ),
    "no baseline": (
        ".md",
        "\n| GPUs | Time (s) | Speedup |\n|---|---|---|\n| 2 | 60 | 1.8 |\n| 4 | 32 | 3.4 |\n",
        {"baseline-missing"},
    ),
    "one unfair table among honest ones": (
        ".md",
        """
## A
| GPUs | Time (s) |
|---|---|
| 1 | 100 |
| 2 | 52 |

## B
| GPUs | dtype | Time (s) |
|---|---|---|
| 1 | float32 | 100 |
| 2 | bfloat16 | 30 |
""",
        {"unequal-precision", "superlinear"},
    ),
}

HONEST |= {
    "time to an accuracy, of other batches": (
        ".md",
        "\n| GPUs | Global batch | Time to 75.9% (min) |\n|---|---|---|\n| 8 | 2048 | 120 |\n| 64 | 4096 | 20 |\n",
        set(),
    ),
    "rates of a GPU, in the heading": (
        ".md",
        "\n### Throughput (tokens/s/GPU)\n\n| Model | 8 GPUs | 64 GPUs |\n|---|---|---|\n| 7B | 3,800 | 3,700 |\n",
        set(),
    ),
    "strategies side by side": (
        ".md",
        """
| Strategy | GPUs | Throughput (samples/sec) | Speedup | Scaling efficiency |
|---|---|---|---|---|
| Single GPU | 1 | 1,024.5 | 1.00× | 100.0% |
| DataParallel | 4 | 2,150.1 | 2.10× | 52.5% |
| DDP | 4 | 3,890.0 | 3.80× | 94.9% |
""",
        set(),
    ),
    "a single run of each, in two precisions": (
        ".md",
        """
Every number is from a single run.

|  | TF32 | BF16 |
|---|---|---|
| 1 GPU | 420 img/s | 1010 img/s |
| 4 GPUs | 1610 img/s | 3800 img/s |
""",
        {"one-run-each"},
    ),
}
HONEST |= {
    "two methods in columns": (
        ".md",
        """
| N GPU | dp time | ddp time | dp speedup | ddp speedup |
|---|---|---|---|---|
| 1 | 100 | 101 | 1.0 | 1.0 |
| 4 | 55 | 28 | 1.82 | 3.61 |
""",
        set(),
    ),
    "a physicist's header": (
        ".md",
        "\n| cores | time/s | S | E |\n|---|---|---|---|\n| 1 | 100 | 1.00 | 1.00 |\n| 4 | 26 | 3.85 | 0.96 |\n",
        set(),
    ),
    "workers of a loader are not devices": (
        ".md",
        "\n| num_workers | GPUs | epoch time |\n|---|---|---|\n| 0 | 1 | 200 s |\n| 8 | 1 | 60 s |\n| 8 | 2 | 32 s |\n",
        set(),
    ),
    "rows that agree although the page has other precisions elsewhere": (
        ".md",
        """
We measured the throughput without AMP.

| GPUs | imgs/sec | speedup |
|---|---|---|
| 1 | 100 | 1 |
| 4 | 390 | 3.9 |

To go faster you can use mixed precision on 8 GPUs.
""",
        set(),
    ),
}
UNFAIR |= {
    "a table for each number of devices": (
        ".md",
        """
## 1 GPU, fp32

| Epochs | Time |
|---|---|
| 10 | 73.48 s |

## 4 GPUs, AMP

| Epochs | Time |
|---|---|
| 10 | 4.83 s |
""",
        {"unequal-precision", "superlinear"},
    ),
    "a turned table whose first column is called baseline": (
        ".md",
        """
| | Baseline | DDP (2 GPUs) | DDP (4 GPUs) |
|---|---|---|---|
| Precision | FP32 | FP16 | FP16 |
| Time per epoch | 73.48s | 37.0s | 19.5s |
""",
        {"unequal-precision"},
    ),
    "without and with AMP": (
        ".md",
        """
| Method | Time | Speedup |
|---|---|---|
| Single GPU (no AMP) | 73.48 s | 1.00 |
| Single GPU + AMP | 30.2 s | 2.43 |
| DDP 4 GPUs + AMP | 8.3 s | 8.85 |
""",
        {"unequal-precision", "superlinear"},
    ),
    "two subjects in a sentence": (
        ".md",
        """
| Devices | Time (sec) |
|---|---|
| 1 GPU | 73.48 |
| 2 GPUs | 41.0 |
| 2 nodes x 2 GPUs | 24.9 |

The baseline trains in float32. The 2 GPUs and 2 nodes x 2 GPUs runs use bf16.
""",
        {"unequal-precision"},
    ),
}
UNFAIR |= {
    "a list of results": (
        ".md",
        "\n## Results\n\n- 1 GPU: 73.48 s\n- 4 GPUs: 4.83 s (speedup 15.2x)\n",
        {"superlinear"},
    ),
    "the text tells the precision of both": (
        ".md",
        """
The single-GPU run uses full precision (FP32), while the multi-GPU runs enable automatic mixed precision.

| Number of GPUs | Time per epoch |
|:-:|:-:|
| 1 | 73.48 s |
| 4 | 19.1 s |
""",
        {"unequal-precision"},
    ),
    "nodes × GPUs, a precision for each row": (
        ".md",
        """
| Nodes × GPUs | Precision | Wall time | Speedup |
|---|---|---|---|
| 1×1 | fp32 | 36h 12m | 1 |
| 2×4 | AMP | 5h 50m | 6.2x |
""",
        {"unequal-precision"},
    ),
}

SILENT = {
    "no table": (".md", "# Title\n\nNothing is compared here.\n"),
    "another kind of table": (".md", "\n| Option | Default |\n|---|---|\n| --lr | 0.1 |\n| --gpus | 1 |\n"),
    "inference by batch size": (
        ".md",
        "\n| Batch size | Throughput | Latency |\n|---|---|---|\n| 1 | 96 img/s | 10.4 ms |\n| 8 | 700 img/s | 11.5 ms |\n",
    ),
    "limits of queues": (
        ".md",
        "\n| Queue | Nodes | Max. wall time |\n|---|---|---|\n| a | 1-4 | 1 h |\n| b | 4-512 | 4 days |\n",
    ),
    "an empty csv": (".csv", ""),
}
