#!/bin/bash
#SBATCH --job-name=train
#SBATCH --account=def-user
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --time=1-00:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=/work/user/project/runs/train/20260101-120000-abcd/logs/job.log
#SBATCH --mail-user=user@example.org
#SBATCH --mail-type=BEGIN,END,FAIL,REQUEUE

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
  module load StdEnv/2020 gcc/11.3.0 python/3.8.10 openmpi || finish failed 1
  # shellcheck disable=SC1091
  . "$HOME"/venv/bin/activate || finish failed 1
  export PYTHONUNBUFFERED=1
  export RANKUP_LOST=stop
  cores=${SLURM_CPUS_ON_NODE:-$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)}
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores > 1 ? cores / 1 : 1))} # torchrun would say 1

  # The ranks: 1 × 1 by mpirun
  prove 864 python 1 train.py --lr 0.1 --note 'it'"'"'s $HOME'
  choose_rendezvous # MASTER_ADDR, MASTER_PORT
  print_header "$(python --version 2>&1)"
  mark_processes
  write_rank_script
  write_sampler_script
  mpirun -np 1 --map-by ppr:1:node --bind-to none -x PATH -x OMP_NUM_THREADS -x RUN -x RANKUP_RUN_DIR -x MASTER_ADDR -x MASTER_PORT -x PYTHONUNBUFFERED -x RANKUP_LOST ${LD_LIBRARY_PATH:+-x LD_LIBRARY_PATH} ${PYTHONPATH:+-x PYTHONPATH} \
    bash -c '
      export RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE LOCAL_WORLD_SIZE=$OMPI_COMM_WORLD_LOCAL_SIZE NODE_RANK=$((OMPI_COMM_WORLD_RANK / OMPI_COMM_WORLD_LOCAL_SIZE))
      unset SLURM_NTASKS
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
# The functions of alliance-one-gpu-mpirun.sh
