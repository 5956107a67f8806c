#!/bin/bash
#SBATCH --job-name=train
#SBATCH --account=abc123
#SBATCH --partition=batch
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --gpus-per-node=8
#SBATCH --time=01:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=/work/user/project/runs/train/20260101-120000-abcd/logs/job.log
#SBATCH --network=disable_rdzv_get

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
INTERFACE=hsn0 # the nodes' network; '': the route says it

main() {
  read_allocation # JOB, HOSTS, END
  make_run_directory "$JOB" # RUN
  begin_attempt

  # The environment
  cd /work/user/project || finish failed 1
  # shellcheck disable=SC1090
  for init in $(module_inits); do type module >/dev/null 2>&1 || . "$init"; done
  module load PrgEnv-gnu/8.7.0 cpe/26.03 miniforge3/23.11.0-0 rocm/7.1.1 craype-accel-amd-gfx90a rccl-net-plugin || finish failed 1
  # `conda activate` is a function of the shell, which batch shells do not have.
  # shellcheck disable=SC1091
  . "$(conda info --base)/etc/profile.d/conda.sh" || finish failed 1
  conda activate /lustre/orion/abc123/env || finish failed 1
  export LD_LIBRARY_PATH="$CRAY_LD_LIBRARY_PATH"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export PYTHONUNBUFFERED=1
  export OMP_NUM_THREADS=7
  export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
  export GLOO_SOCKET_IFNAME=hsn0
  export RANKUP_LOST=stop
  export MIOPEN_USER_DB_PATH=/tmp/miopen-"$SLURM_JOB_ID"
  export MIOPEN_CUSTOM_CACHE_DIR=/tmp/miopen-"$SLURM_JOB_ID"
  export FI_CXI_RDZV_PROTO=alt_read

  # The ranks: 2 × 8 by srun
  prove 36 python 8 train.py --lr 0.1 --note 'it'"'"'s $HOME'
  choose_rendezvous # MASTER_ADDR, MASTER_PORT
  print_header "$(python --version 2>&1)"
  mark_processes
  write_rank_script
  add_torch_hook python
  write_sampler_script
  srun --nodes=2 --ntasks=16 --ntasks-per-node=8 --cpus-per-task=7 --cpu-bind=cores --distribution=block --kill-on-bad-exit=1 --mpi=none --label \
    bash -c '
      export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS LOCAL_WORLD_SIZE=8 NODE_RANK=$SLURM_NODEID
      exec sh "$RUN/rank.sh" "$@"' rank \
      python train.py --lr 0.1 --note 'it'"'"'s $HOME' &
  workers=$!
  watch_ranks # asks them to save before the time limit
  find_lost_nodes
  end_attempt python # requeues the job if it is not done
}

######################################################################################################################
# The functions of della-two-nodes-srun.sh
