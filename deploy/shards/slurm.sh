#!/bin/bash
# A plan in eight shards as a Slurm array, merged by the one that ends last. All nodes share the file system.
#   sbatch deploy/shards/slurm.sh plan.yaml runs/whole
# Shards that were stopped go on where they were: submit the same again, or single ones with --array=3.
#SBATCH --job-name=evenhand
#SBATCH --array=1-8
#SBATCH --cpus-per-task=4
#SBATCH --mem=8G
#SBATCH --time=24:00:00
#SBATCH --requeue
# For hf/ models, add: SBATCH --gres=gpu:1
set -euo pipefail

plan=$1
out=$2
count=8
shard=${SLURM_ARRAY_TASK_ID:?run this by sbatch}
folder="$out.shards/$shard"

resume=()
if [ -f "$folder/run.sqlite" ]; then
  resume=(--resume)
fi
evenhand run --config "$plan" --shard "$shard/$count" --out "$folder" "${resume[@]}"
touch "$folder.done"

folders=()
for each in $(seq "$count"); do
  if [ ! -f "$out.shards/$each.done" ]; then
    exit 0
  fi
  folders+=("$out.shards/$each")
done
# Only one of several that end at the same time can make this folder.
if mkdir "$out.shards/merging" 2>/dev/null; then
  evenhand run merge "${folders[@]}" --out "$out"
fi
