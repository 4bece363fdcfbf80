"""transformers, training: ``TrainingArguments(torch_compile_backend="kiln")``."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


def losses(**compiled: Any) -> list[float]:
    """The loss of every step."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=96, n_embd=64, n_head=4, n_layer=2, n_positions=64, resid_pdrop=0,
                                       embd_pdrop=0, attn_pdrop=0))
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 96, (24, 16))]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, per_device_train_batch_size=4, max_steps=5, logging_steps=1,
                                      report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True, **compiled)
        trainer = Trainer(model, arguments, train_dataset=rows)
        trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


have, want = losses(torch_compile_backend="kiln"), losses()
assert len(have) == 5 and max(abs(a - b) for a, b in zip(have, want, strict=True)) < 2e-3, (have, want)
print("losses", have)
