#!/bin/bash
#PBS -N train
#PBS -A st-user-1-gpu
#PBS -l select=1:mpiprocs=1:mem=190464mb
#PBS -l place=scatter
#PBS -l walltime=24:00:00
#PBS -j oe
#PBS -r y
#PBS -o /work/user/project/runs/train/20260101-120000-abcd/logs/
#PBS -m abe
#PBS -M user@example.org

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
TIME=86400 # seconds; 0: the queue's own limit
NODES_MAY_SUBMIT=yes

# On each node:
# shellcheck disable=SC2317,SC2329 # it is called by another shell
agent() {
  exec torchrun \
    --nnodes=1 --nproc_per_node=1 --max_restarts=0 \
    --standalone --local_addr=127.0.0.1 \
    --tee=3 --log_dir="$RUN/logs/torchrun" \
    --no_python -- sh "$RUN/rank.sh" -u train.py --lr 0.1 --note 'it'"'"'s $HOME'
}

main() {
  read_allocation # JOB, HOSTS, END
  make_run_directory "$JOB" # RUN
  write_one_log
  begin_attempt

  # The environment
  cd /work/user/project || finish failed 1
  # shellcheck disable=SC1090
  for init in $(module_inits); do type module >/dev/null 2>&1 || . "$init"; done
  module load gcc/9.4.0 python/3.8.10 || finish failed 1
  # shellcheck disable=SC1091
  . /arc/project/user/venv/bin/activate || finish failed 1
  export PYTHONUNBUFFERED=1
  export RANKUP_LOST=stop
  cores=${NCPUS:-$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)}
  export OMP_NUM_THREADS=$((cores > 1 ? cores / 1 : 1))

  # The ranks: 1 × 1 by torchrun
  prove 864 python 1 train.py --lr 0.1 --note 'it'"'"'s $HOME'
  print_header "$(python --version 2>&1)"
  mark_processes
  write_rank_script
  write_sampler_script
  # shellcheck disable=SC2016 # torchrun fills this in
  export TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='[rank ${rank}] '
  start_agent
  workers=$!
  watch_ranks # asks them to save before the time limit
  end_attempt python # requeues the job if it is not done
}

######################################################################################################################
# The functions of eap-one-gpu-torchrun.sh
