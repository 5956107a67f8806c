"""Names that programs use: the variables that launchers set, packages, and what torch calls things."""

from __future__ import annotations

import sys


def words(text: str) -> tuple[str, ...]:
    """A long list of names, as a text."""
    return tuple(text.split())


def names(text: str) -> frozenset[str]:
    """The same, for a question whether a name is one of them."""
    return frozenset(text.split())


RANK_VARIABLES = names(
    """
    RANK SLURM_PROCID OMPI_COMM_WORLD_RANK PMI_RANK PMIX_RANK PALS_RANKID MV2_COMM_WORLD_RANK
    """
)
LOCAL_RANK_VARIABLES = names(
    """
    LOCAL_RANK SLURM_LOCALID OMPI_COMM_WORLD_LOCAL_RANK MPI_LOCALRANKID PALS_LOCAL_RANKID MV2_COMM_WORLD_LOCAL_RANK
    """
)
WORLD_SIZE_VARIABLES = names(
    """
    WORLD_SIZE SLURM_NTASKS SLURM_NPROCS SLURM_STEP_NUM_TASKS OMPI_COMM_WORLD_SIZE PMI_SIZE PALS_SIZE
    MV2_COMM_WORLD_SIZE
    """
)
LOCAL_SIZE_VARIABLES = names(
    """
    LOCAL_WORLD_SIZE SLURM_NTASKS_PER_NODE SLURM_TASKS_PER_NODE SLURM_GPUS_ON_NODE SLURM_GPUS_PER_NODE
    OMPI_COMM_WORLD_LOCAL_SIZE MPI_LOCALNRANKS PALS_LOCAL_SIZE
    """
)
NODE_RANK_VARIABLES = {"NODE_RANK", "GROUP_RANK", "SLURM_NODEID", "PALS_NODEID", "PBS_NODENUM"}
DEVICE_LIST_VARIABLES = names(
    """
    CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES SLURM_JOB_GPUS SLURM_STEP_GPUS GPU_DEVICE_ORDINAL
    """
)

# Calls and attributes of packages that say who a process is.
RANK_NAMES = names(
    """
    torch.distributed.get_rank horovod.torch.rank idr_torch.rank deepspeed.comm.get_rank
    torch_xla.core.xla_model.get_ordinal torch_xla.runtime.global_ordinal ezpz.get_rank
    """
)
LOCAL_RANK_NAMES = names(
    """
    torch.distributed.get_node_local_rank horovod.torch.local_rank idr_torch.local_rank
    deepspeed.comm.get_local_rank torch_xla.core.xla_model.get_local_ordinal ezpz.get_local_rank
    """
)
WORLD_SIZE_NAMES = names(
    """
    torch.distributed.get_world_size horovod.torch.size idr_torch.size idr_torch.world_size
    deepspeed.comm.get_world_size ezpz.get_world_size
    """
)
LOCAL_SIZE_NAMES = names(
    """
    torch.cuda.device_count torch.xpu.device_count torch.accelerator.device_count horovod.torch.local_size
    idr_torch.local_world_size torch.cuda._device_count_nvml
    """
)
# Attributes of objects that frameworks make: accelerator.process_index, fabric.global_rank, job_env.local_rank.
RANK_ATTRIBUTES = {"process_index", "global_rank"}
LOCAL_RANK_ATTRIBUTES = {"local_process_index"}
FIRST_RANK_ATTRIBUTES = names(
    """
    is_main_process is_local_main_process is_global_zero is_world_process_zero is_local_process_zero
    """
)
#: Packages that neither shard nor wrap: to import them says nothing about what is absent.
_QUIET = words(
    """
torch torchvision torchaudio torchtext torchdata torchinfo torchsummary torchmetrics numpy PIL cv2 sklearn skimage scipy
pandas matplotlib seaborn tqdm yaml h5py tensorboard tensorboardX wandb mlflow timm transformers datasets tokenizers
einops omegaconf hydra psutil requests packaging setuptools six future attr attrs click typer fire rich colorama
termcolor loguru absl pynvml GPUtil nvidia_smi jsonargparse configargparse yacs addict toml tomli easydict munch
tiktoken sentencepiece nltk spacy gym gymnasium zarr xarray netCDF4 pyarrow lmdb msgpack boto3 botocore s3fs fsspec
numba cupy mpi4py submitit idr_torch hostlist torch_geometric torch_scatter torch_sparse albumentations kornia
imageio huggingface_hub safetensors evaluate peft bitsandbytes flash_attn triton apex prettytable tabulate pytest
IPython ipdb pytz dateutil joblib optuna clearml comet_ml neptune aim sacred visdom pycocotools shapely networkx
sympy line_profiler memory_profiler codecarbon dotenv filelock openpyxl librosa soundfile sounddevice gensim ase rdkit
deepdiff regex ftfy orjson ujson simplejson xgboost lightgbm monai nibabel SimpleITK medpy torchio lpips piq
jax tensorflow nvidia pytorch_msssim pytorch_fid cleanfid vit_pytorch efficientnet_pytorch segmentation_models_pytorch
"""
)
STANDARD = {*_QUIET, *sys.stdlib_module_names, "pkg_resources", "distutils", "imp"}

#: Where torch has one thing under several names, its last part decides.
COLLECTIVES = names(
    """
    barrier monitored_barrier all_reduce all_reduce_coalesced reduce broadcast broadcast_object_list all_gather
    all_gather_into_tensor all_gather_object gather gather_object scatter scatter_object_list reduce_scatter
    reduce_scatter_tensor all_to_all all_to_all_single
    """
)


def torch_name(name: str) -> str:
    """The last part of a name of torch, of apex or of fairscale: what a rule compares; "" for other packages."""
    return name.rpartition(".")[2] if name.startswith(("torch.", "apex.", "fairscale.")) else ""


def is_collective(name: str) -> bool:
    head, _, last = name.rpartition(".")
    return head in {"torch.distributed", "torch.distributed.distributed_c10d"} and last in COLLECTIVES
