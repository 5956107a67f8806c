#!/bin/bash
#PBS -N eap
#PBS -l select=2:ncpus=1:mpiprocs=1
#PBS -l place=scatter
#PBS -l walltime=00:10:00
#PBS -j oe
#PBS -o eap.log
#PBS -r y
#PBS -v PYTHON

cd "$PBS_O_WORKDIR" || exit 1
[ -e finished ] && exit 0
export MASTER_ADDR=$(head -n 1 "$PBS_NODEFILE") MASTER_PORT=29512 WORLD_SIZE=2

# The next job waits for this one, and takes over when this one's time is up.
qsub -W depend=afterany:"$PBS_JOBID" eap.sh >next

# Each rank gets this shell's folder and environment.
export -p >environment
rank=0
for node in $(uniq "$PBS_NODEFILE"); do
  pbsdsh -n "$rank" -- /bin/bash -c ". $PWD/environment; cd $PWD; export RANK=$rank LOCAL_RANK=0; exec $PYTHON train.py" &
  rank=$((rank + 1))
done
wait
[ -e finished ] && qdel "$(cat next)"
rm -f next
