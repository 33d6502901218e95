"""Writes a LoRA adapter with random weights for the model of tiny.py into a folder. Usage: adapter.py DIR"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

HIDDEN, LAYERS, QUERIES, VALUES, RANK = 64, 2, 4 * 32, 2 * 32, 8

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
(out / "adapter_config.json").write_text(
    json.dumps(
        {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": "tiny",
            "r": RANK,
            "lora_alpha": 2 * RANK,
            "lora_dropout": 0.0,
            "bias": "none",
            "target_modules": ["q_proj", "v_proj"],
        }
    )
)
torch.manual_seed(1)
weights = {}
for n in range(LAYERS):
    for name, size in (("q_proj", QUERIES), ("v_proj", VALUES)):
        at = f"base_model.model.model.layers.{n}.self_attn.{name}."
        weights[at + "lora_A.weight"] = torch.randn(RANK, HIDDEN).to(torch.bfloat16)
        weights[at + "lora_B.weight"] = torch.randn(size, RANK).to(torch.bfloat16)
save_file(weights, out / "adapter_model.safetensors", metadata={"format": "pt"})
