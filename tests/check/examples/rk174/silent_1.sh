--- job.sh
#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=1
mpirun -np 2 --map-by ppr:1:node bash node.sh
--- node.sh
if [ "$OMPI_COMM_WORLD_RANK" -eq 0 ]; then
  HEAD_NODE=$(hostname -i)
  echo "$HEAD_NODE" > head
else
  HEAD_NODE=$(cat head)
fi
torchrun --nnodes=2 --nproc_per_node=1 --rdzv_backend=c10d --rdzv_endpoint=$HEAD_NODE:29400 train.py
