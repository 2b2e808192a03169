"""What transformers itself generates, greedily, for comparing servers' answers.

    python references.py FOLDER TOKENS < prompts.json > references.json

In bfloat16 each prompt runs alone, as `generate` is commonly called; in float32, where the
batch makes no difference that shows, all run together.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

Tokens = Mapping[str, list[list[int]]]
"""Generated tokens of each prompt, by dtype."""


def references(folder: Path, prompts: Sequence[str], tokens: int) -> Tokens:
    """Generate in a process of its own, which gives its memory back."""
    done = subprocess.run(
        [sys.executable, __file__, str(folder), str(tokens)],
        input=json.dumps(list(prompts)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: Tokens = json.loads(done.stdout)
    return found


def main() -> None:
    import torch  # noqa: PLC0415 - only the process that computes pays for it
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    folder, tokens = sys.argv[1], int(sys.argv[2])
    prompts = json.load(sys.stdin)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(prompts, return_tensors="pt", add_special_tokens=False).input_ids
    found = {}
    for dtype, size in ((torch.bfloat16, 1), (torch.float32, len(prompts))):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        model.generation_config.eos_token_id = None
        rows: list[list[int]] = []
        with torch.inference_mode():
            for part in ids.split(size):
                mask = torch.ones_like(part)
                made = model.generate(
                    part, attention_mask=mask, max_new_tokens=tokens, do_sample=False
                )
                rows += made[:, part.shape[1] :].tolist()
        found[str(dtype).removeprefix("torch.")] = rows
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
