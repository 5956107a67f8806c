--- job.sh
#!/bin/bash
#SBATCH --nodes=1
source env.sh
python train.py
--- env.sh
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$HERE/venv/bin/activate"
