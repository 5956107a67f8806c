--- job.sh
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun accelerate launch --config_file fsdp.yaml --main_process_ip $HEAD --main_process_port 29500 train.py
--- fsdp.yaml
distributed_type: FSDP
machine_rank: 0
num_machines: 1
num_processes: 4  # of one machine
rdzv_backend: c10d
