#!/usr/bin/env bash
# Serves the tiny model of setup.sh on 127.0.0.1:PORT under the name "tiny", in the foreground.
# Usage: run.sh DIR PORT [further vLLM arguments]
set -euo pipefail
dir=${1:?usage: run.sh DIR PORT}
port=${2:?usage: run.sh DIR PORT}
shift 2
export VLLM_TARGET_DEVICE=cpu VLLM_PLUGINS= VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1 KMP_BLOCKTIME=0
export VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1
exec "$dir/env/bin/vllm" serve "$dir/tiny" --served-model-name tiny --host 127.0.0.1 --port "$port" --enforce-eager --dtype bfloat16 \
	--max-model-len 4096 --max-num-seqs 16 --block-size 32 --enable-prefix-caching --enable-prompt-tokens-details "$@"
