"""Turns a GGUF file into a folder of bf16 safetensors and a tokenizer that vLLM serves.

Run as a program, in a process of its own, so that the caller never imports torch:

    python vllm_convert.py MODEL.gguf OUT

OUT must not exist; it is complete when the exit code is 0. Nothing is fetched.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def convert(gguf: Path, out: Path) -> None:
    """Write the dequantised model in ``gguf`` to the new folder ``out``.

    Raises ValueError if the tokenizer's end of turn is not where generation stops: vLLM would
    then serve a model that talks on after its answer.
    """
    out.mkdir()
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    check_end_of_turn(tokenizer, model)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def check_end_of_turn(tokenizer: AutoTokenizer, model: AutoModelForCausalLM) -> None:
    """Compare the token that ends a turn in the chat template with the model's stop token."""
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    ids = tokenizer.apply_chat_template(turns, tokenize=True, return_dict=False)
    stop = model.generation_config.eos_token_id
    if stop != model.config.eos_token_id or stop != tokenizer.eos_token_id or stop not in ids:
        raise ValueError(
            f"generation stops at token {stop}, the configuration says "
            f"{model.config.eos_token_id}, the tokenizer {tokenizer.eos_token_id}, and two turns "
            f"of the chat template are {ids}"
        )


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
