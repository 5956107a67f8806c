"""torch about models, losses and gradients."""

from __future__ import annotations

from rankup.explain.signatures.signature import ROOT, Signature

MODELS = (
    Signature(
        name="ddp-unused-parameters",
        pattern=(
            "Expected to have finished reduction in the prior iteration"
            "|has parameters that were not used in producing the loss"
        ),
        level=ROOT,
        what="some parameters of the model got no gradient",
        cause=(
            "DDP waits for a gradient of each parameter, and the forward pass or the loss did not "
            "use all of them"
        ),
        fix=(
            "use all parameters in the loss, remove those that are not needed, or DDP(…, "
            "find_unused_parameters=True)"
        ),
        example=(
            "RuntimeError: Expected to have finished reduction in the prior iteration before "
            "starting a new one."
        ),
        rules=("RK212",),
    ),
    Signature(
        name="ddp-marked-twice",
        pattern="Expected to mark a variable ready only once",
        level=ROOT,
        what="a parameter got its gradient twice in one backward pass",
        cause=(
            "DDP met a parameter twice: activation checkpointing with reentrant backward, or a "
            "module that is called twice"
        ),
        fix="use checkpoint(…, use_reentrant=False), or DDP(…, static_graph=True)",
        example=(
            "RuntimeError: Expected to mark a variable ready only once. This error is caused by "
            "one of the following reasons:"
        ),
    ),
    Signature(
        name="ddp-models-differ",
        pattern=(
            "appears not to match (sizes|strides) of the same param in process"
            "|DDP expects same model across all ranks"
        ),
        level=ROOT,
        what="the model differs between ranks",
        cause="DDP compares the parameters of all ranks, and they have other shapes or numbers here",
        fix=("build the same model on each rank: the same configuration, number of classes and vocabulary"),
        example=(
            "RuntimeError: [1]: params[0] in this process with sizes [11, 4] appears not to match "
            "sizes of the same param in process 0."
        ),
    ),
    Signature(
        name="state-dict-mismatch",
        pattern=r"Error\(s\) in loading state_dict",
        level=ROOT,
        what="the snapshot is of another model",
        cause=(
            "names or shapes of the state do not match the model; names that begin with module. "
            "were saved from inside DDP"
        ),
        fix="save model.module.state_dict(); build the model as it was when it was saved",
        example="RuntimeError: Error(s) in loading state_dict for Sequential:",
        rules=("RK210",),
    ),
    Signature(
        name="mixed-devices",
        pattern=(
            "Expected all tensors to be on the same device|is not on the expected device"
            r"|Input type \(.*\) and weight type \(.*\) should be the same"
        ),
        level=ROOT,
        what="tensors of one operation are on different devices",
        cause="the model or the batch was not moved to the rank's device",
        fix="move both: model.to(device), x.to(device), with device from LOCAL_RANK",
        example=(
            "RuntimeError: Expected all tensors to be on the same device, but found at least two "
            "devices, cuda:0 and cpu!"
        ),
    ),
    Signature(
        name="dtypes-differ",
        pattern=(
            r"must have the same dtype|expected scalar type \w+ but found \w+"
            "|Must flatten tensors with uniform dtype"
        ),
        level=ROOT,
        what="two tensors have different types of numbers",
        cause="a part of the model or of the data is float64, float16 or bfloat16, and another is not",
        fix=(
            "convert the data with .float() (numpy gives float64), compute under torch.autocast, or give FSDP "
            "parameters of one type"
        ),
        example="RuntimeError: mat1 and mat2 must have the same dtype, but got Double and Float",
    ),
    Signature(
        name="shapes-differ",
        pattern=(
            "shapes cannot be multiplied|must match the size of tensor|Sizes of tensors must match"
            r"|size mismatch, m1|shape '\[.*\]' is invalid for input"
        ),
        level=ROOT,
        what="the shapes of two tensors do not fit",
        cause=(
            "the input has another shape than the layer expects; a last batch that is smaller, or "
            "another data set, does this"
        ),
        fix="print the shapes before the line that is quoted",
        example="RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x2352 and 784x10)",
    ),
    Signature(
        name="label-out-of-range",
        pattern=(
            r"Target \d+ is out of bounds|Assertion `t >= 0 && t < n_classes` failed"
            "|index out of range in self"
        ),
        level=ROOT,
        what="an index is larger than its table",
        cause=("a label is at least the number of classes, or a token at least the size of the vocabulary"),
        fix="count the classes of the data set, and give the model as many outputs",
        example="IndexError: Target 10 is out of bounds.",
    ),
    Signature(
        name="backward-twice",
        pattern="Trying to backward through the graph a second time",
        level=ROOT,
        what="backward was called twice on one graph",
        cause="a tensor of an earlier step is still part of the loss, or the loss is used twice",
        fix="detach() what is carried over from step to step; sum the losses before one backward()",
        example=(
            "RuntimeError: Trying to backward through the graph a second time (or directly access "
            "saved tensors after they have already been freed)."
        ),
    ),
    Signature(
        name="inplace-change",
        pattern="modified by an inplace operation",
        level=ROOT,
        what="a tensor that backward requires was changed in place",
        cause=(
            "an operation (+=, relu_, an optimizer's step, DDP's broadcast of buffers) overwrote "
            "what was saved for backward"
        ),
        fix=("replace the in-place operation; with DDP and two forward passes try broadcast_buffers=False"),
        example=(
            "RuntimeError: one of the variables needed for gradient computation has been modified "
            "by an inplace operation: [torch.FloatTensor [64]] is at version 4; expected version 3 "
            "instead."
        ),
    ),
)
