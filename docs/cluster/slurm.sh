#!/usr/bin/env bash
# A training on two machines of eight GPUs each:  sbatch slurm.sh RUN MODEL DATA [key=value ...]
# RUN is a folder that all machines share. Where the run was begun before, it goes on; on another number of machines too.
#SBATCH --job-name=cutaway
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@300
#SBATCH --requeue
set -euo pipefail

run=$1
shift
if [ -f "$run/run.json" ]; then
    work=(--resume "$run")
else
    work=("$@" --out "$run")
fi
mapfile -t machines < <(scontrol show hostnames "$SLURM_JOB_NODELIST")

# One agent on each machine, which starts a process for each GPU; they meet on the first machine.
status=0
srun torchrun \
    --nnodes="$SLURM_JOB_NUM_NODES" \
    --nproc-per-node="$SLURM_GPUS_ON_NODE" \
    --rdzv-id="$SLURM_JOB_ID" \
    --rdzv-backend=c10d \
    --rdzv-endpoint="${machines[0]}:29500" \
    --rdzv-conf=join_timeout=300 \
    --shutdown-timeout=240 \
    -m cutaway train "${work[@]}" || status=$?

# Five minutes before the time is up SLURM asks all processes to stop: the run has its checkpoint, and waits to go on.
if [ "$status" -ne 0 ] && grep -q '"status": "interrupted"' "$run/run.json"; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
