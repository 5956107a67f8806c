#!/bin/bash
#SBATCH -A project_465000000
#SBATCH -p standard-g
#SBATCH -N 2
#SBATCH -n 16
#SBATCH --ntasks-per-node 8
#SBATCH --gpus-per-node 8
#SBATCH -t 1:00:00
#SBATCH --mem 0
#SBATCH --exclusive

CONTAINER=/appl/local/containers/sif-images/lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.6.0.sif
c=fe
MYMASKS="0x${c}000000000000,0x${c}00000000000000,0x${c}0000,0x${c}000000,0x${c},0x${c}00,0x${c}00000000,0x${c}0000000000"

export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
export NCCL_NET_GDR_LEVEL=PHB
export MASTER_ADDR=$(scontrol show hostname "$SLURM_NODELIST" | head -n1)
export MASTER_PORT=1${SLURM_JOB_ID:0-4}
export WORLD_SIZE=$SLURM_NPROCS

cat > wrapper-$SLURM_JOB_ID.sh << 'EOS'
#!/bin/bash -e
export RANK=$SLURM_PROCID
export LOCAL_RANK=$SLURM_LOCALID
export MIOPEN_USER_DB_PATH=/tmp/miopen-$SLURM_NODEID
mkdir -p $MIOPEN_USER_DB_PATH
exec python -u train.py "$@"
EOS
chmod +x wrapper-$SLURM_JOB_ID.sh

srun --cpu-bind=mask_cpu:$MYMASKS singularity exec -B $PWD $CONTAINER ./wrapper-$SLURM_JOB_ID.sh --epochs 3
rm wrapper-$SLURM_JOB_ID.sh
