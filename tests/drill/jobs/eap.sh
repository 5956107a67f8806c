#!/bin/bash
#PBS -N eap
#PBS -l select=2:ncpus=1:mpiprocs=1
#PBS -l place=scatter
#PBS -l walltime=00:10:00
#PBS -j oe
#PBS -o eap.log
#PBS -r y

cd "$PBS_O_WORKDIR" || exit 1
[ -e finished ] && exit 0
export MASTER_ADDR=$(head -n 1 "$PBS_NODEFILE") MASTER_PORT=29512 WORLD_SIZE=2

# The next job waits for this one, and takes over when this one's time is up.
[ -e next ] || qsub -W depend=afterany:"$PBS_JOBID" eap.sh >next

rank=0
for node in $(uniq "$PBS_NODEFILE"); do
  pbsdsh -n "$rank" -- /bin/bash -c "cd $PWD; export PATH=$PATH PYTHONPATH=$PYTHONPATH RANKUP_TRACE=$RANKUP_TRACE \
    RANKUP_TRACE_REFERENCE=$RANKUP_TRACE_REFERENCE RANKUP_DRILL='${RANKUP_DRILL:-}' RANKUP_WRITTEN=${RANKUP_WRITTEN:-} \
    MASTER_ADDR=$MASTER_ADDR MASTER_PORT=$MASTER_PORT WORLD_SIZE=2 RANK=$rank LOCAL_RANK=0; exec python train.py" &
  rank=$((rank + 1))
done
wait
rm -f next
