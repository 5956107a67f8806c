#!/bin/bash
#SBATCH --job-name=train
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --time=1-00:00:00
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

main() {
  read_allocation # JOB, HOSTS, END
  make_run_directory "$JOB" # RUN
  begin_attempt

  # The environment
  cd /work/user/project || finish failed 1
  # shellcheck disable=SC1090
  for init in $(module_inits); do type module >/dev/null 2>&1 || . "$init"; done
  module load PyTorch/1.12.0-foss-2022a-CUDA-11.7.0 torchvision/0.13.1-foss-2022a-CUDA-11.7.0 cuDNN/8.4.1.50-CUDA-11.7.0 CUDA/11.7.0 NCCL/2.12.12-GCCcore-11.3.0-CUDA-11.7.0 || finish failed 1
  export PYTHONUNBUFFERED=1
  export RANKUP_LOST=stop
  cores=${SLURM_CPUS_ON_NODE:-$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)}
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores > 4 ? cores / 4 : 1))} # torchrun would say 1

  # The ranks: 1 × 4 by torchrun
  prove 864 python 4 train.py --lr 0.1 --note 'it'"'"'s $HOME'
  print_header "$(python --version 2>&1)"
  mark_processes
  write_rank_script
  add_torch_hook python
  write_sampler_script
  # shellcheck disable=SC2016 # torchrun fills this in
  export TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='[rank ${rank}] '
  # One agent per node; each starts the ranks of its node. The single quotes matter: here, outside of
  # srun, SLURM_NODEID is 0 for everyone.
  srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 --mpi=none \
    bash -c '
      exec torchrun \
        --nnodes=1 --nproc_per_node=4 --max_restarts=0 \
        --standalone --local_addr=127.0.0.1 \
        --tee=3 --log_dir="$RUN/logs/torchrun" \
        --no_python -- sh "$RUN/rank.sh" -u train.py --lr 0.1 --note '"'"'it'"'"'"'"'"'"'"'"'s $HOME'"'"'' &
  workers=$!
  watch_ranks # asks them to save before the time limit
  end_attempt python # requeues the job if it is not done
}

######################################################################################################################
# The functions of alliance-one-node-torchrun.sh
