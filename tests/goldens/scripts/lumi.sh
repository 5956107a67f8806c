#!/bin/bash
#SBATCH --job-name=train
#SBATCH --account=abc123
#SBATCH --partition=small-g
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=56
#SBATCH --gpus-per-node=8
#SBATCH --mem=480G
#SBATCH --time=01:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=/work/user/project/runs/train/20260101-120000-abcd/logs/job.log

# Written by rankup. This is plain bash: it needs no rankup on the nodes unless the program itself does, and can
# be read, changed and submitted by hand.
# shellcheck disable=SC2016

# ---- Settings ------------------------------------------------------------------------------------------------------
BASE=/work/user/project/runs/train/20260101-120000-abcd # the run directory
RUNS=/work/user/project/runs # all runs are below it
PLACES=() # where else the program may save: paths in its arguments and variables
SAVES=() # patterns of what it goes on from; (): any file there
STOP_BEFORE=300 # seconds before the time limit at which the ranks are asked to save
MAX_REQUEUES=10
INTERFACE='' # the nodes' network; '': the route says it

main() {
  read_allocation # JOB, HOSTS, END
  make_run_directory "$JOB" # RUN
  begin_attempt

  # The environment
  cd /work/user/project || finish failed 1
  # shellcheck disable=SC1090
  for init in $(module_inits); do type module >/dev/null 2>&1 || . "$init"; done
  # From the profile lumi, before the modules:
module use /appl/local/laifs/modules
  module load lumi-aif-singularity-bindings || finish failed 1
  export PYTHONUNBUFFERED=1
  export OMP_NUM_THREADS=7
  export RANKUP_LOST=stop
  export MIOPEN_USER_DB_PATH=/tmp/miopen-"$SLURM_JOB_ID"
  export MIOPEN_CUSTOM_CACHE_DIR=/tmp/miopen-"$SLURM_JOB_ID"
  export NCCL_SOCKET_IFNAME=hsn
  export NCCL_NET_GDR_LEVEL=3

  # The ranks: 2 × 8 by torchrun
  choose_rendezvous # MASTER_ADDR, MASTER_PORT
  print_header "of the image" /appl/local/laifs/containers/lumi-multitorch-latest.sif
  mark_processes
  write_rank_script
  write_sampler_script
  # shellcheck disable=SC2016 # torchrun fills this in
  export TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='[rank ${rank}] '
  # One agent per node; each starts the ranks of its node. The single quotes matter: here, outside of
  # srun, SLURM_NODEID is 0 for everyone.
  srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=56 --cpu-bind=none --kill-on-bad-exit=1 --mpi=none \
    bash -c '
      NODE_RANK=$SLURM_NODEID
      exec singularity run --bind "$RUN" --bind /work/user/project /appl/local/laifs/containers/lumi-multitorch-latest.sif torchrun \
        --nnodes=2 --nproc_per_node=8 --max_restarts=0 \
        --node_rank="$NODE_RANK" --rdzv_backend=static --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" \
        --tee=3 --log_dir="$RUN/logs/torchrun" \
        --no_python -- sh "$RUN/rank.sh" -u train.py --lr 0.1 --note '"'"'it'"'"'"'"'"'"'"'"'s $HOME'"'"'' &
  workers=$!
  watch_ranks # asks them to save before the time limit
  find_lost_nodes
  end_attempt python # requeues the job if it is not done
}

######################################################################################################################
# The functions of olivia-two-nodes-torchrun.sh
