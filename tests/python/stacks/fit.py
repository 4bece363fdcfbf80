"""Lightning: a module that is compiled with Kiln, and the Trainer as ever."""

from __future__ import annotations

from typing import Any

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 1))
        self.losses: list[float] = []

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        x, y = batch
        return nn.functional.mse_loss(self.layers(x), y)

    def on_train_batch_end(self, outputs: Any, *_: Any) -> None:
        self.losses.append(float(outputs["loss"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 1e-2)


def losses(backend: str | None) -> list[float]:
    """The loss of every step."""
    torch.manual_seed(0)
    module = Regression()
    x = torch.randn(32, 8)
    batches = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(module if backend is None else torch.compile(module, backend=backend), batches)
    return module.losses


have, want = losses("kiln"), losses(None)
assert len(have) == 8 and max(abs(a - b) for a, b in zip(have, want, strict=True)) < 2e-3, (have, want)
print("losses", have)
