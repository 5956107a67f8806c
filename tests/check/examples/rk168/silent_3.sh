#!/bin/bash
#SBATCH --nodes=2
cat > options <<END
--nnodes=2
END
srun torchrun $(cat options) train.py
