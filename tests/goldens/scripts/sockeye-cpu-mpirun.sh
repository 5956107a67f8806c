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
INTERFACE='' # the nodes' network; '': the route says it

main() {
  read_allocation # JOB, HOSTS, END
  make_run_directory "$JOB" # RUN
  write_one_log
  begin_attempt

  # The environment
  cd /work/user/project || finish failed 1
  # shellcheck disable=SC1090
  for init in $(module_inits); do type module >/dev/null 2>&1 || . "$init"; done
  module load gcc/9.4.0 python/3.8.10 openmpi || finish failed 1
  # shellcheck disable=SC1091
  . /arc/project/user/venv/bin/activate || finish failed 1
  export PYTHONUNBUFFERED=1
  export RANKUP_LOST=stop
  cores=${NCPUS:-$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)}
  export OMP_NUM_THREADS=$((cores > 1 ? cores / 1 : 1))

  # The ranks: 1 × 1 by mpirun
  prove 864 python 1 train.py --lr 0.1 --note 'it'"'"'s $HOME'
  choose_rendezvous # MASTER_ADDR, MASTER_PORT
  print_header "$(python --version 2>&1)"
  mark_processes
  write_rank_script
  write_sampler_script
  mpirun -np 1 --hostfile "$PBS_NODEFILE" -bind-to none -map-by :OVERSUBSCRIBE -mca pml ob1 -mca btl '^openib' -x PATH -x OMP_NUM_THREADS -x RUN -x RANKUP_RUN_DIR -x MASTER_ADDR -x MASTER_PORT -x PYTHONUNBUFFERED -x RANKUP_LOST ${LD_LIBRARY_PATH:+-x LD_LIBRARY_PATH} ${PYTHONPATH:+-x PYTHONPATH} \
    bash -c '
      export RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE LOCAL_WORLD_SIZE=$OMPI_COMM_WORLD_LOCAL_SIZE NODE_RANK=$((OMPI_COMM_WORLD_RANK / OMPI_COMM_WORLD_LOCAL_SIZE))
      trap "" TERM INT HUP
      exec 3> >(exec sed --unbuffered "s/^/[rank $RANK] /")
      trap - TERM INT HUP
      exec sh "$RUN/rank.sh" "$@" >&3 2>&1 3>&-' rank \
      python train.py --lr 0.1 --note 'it'"'"'s $HOME' &
  workers=$!
  watch_ranks # asks them to save before the time limit
  end_attempt python # requeues the job if it is not done
}

######################################################################################################################
# The functions of sockeye-one-gpu-mpirun.sh
