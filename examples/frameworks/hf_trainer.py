"""Hugging Face Trainer: a tiny BERT with random weights on made-up sentences, so that nothing is downloaded.

torchrun --standalone --nproc-per-node 2 examples/frameworks/hf_trainer.py
rankup run --nproc-per-node 2 examples/frameworks/hf_trainer.py
"""

from __future__ import annotations

import argparse
import tempfile
import time

import torch
from torch import distributed as dist
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

VOCABULARY = 64


class Sentences(Dataset):
    """Sentences of eight random tokens, labelled by whether the first is greater than the last."""

    def __init__(self, samples: int) -> None:
        self.tokens = torch.randint(VOCABULARY, (samples, 8), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = self.tokens[index]
        return {"input_ids": tokens, "labels": (tokens[0] > tokens[-1]).long()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16, help="per process")
    args = parser.parse_args()

    set_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=8,
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=args.steps,
            per_device_train_batch_size=args.batch,
            learning_rate=1e-3,
            use_cpu=not torch.cuda.is_available(),
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=Sentences(1024))
        trainer.train()

    size = sum(p.detach().double().abs().sum().item() for p in trainer.model.parameters())
    print(f"rank {arguments.process_index} of {arguments.world_size} is done, weights {size:.9f}")
    # gloo's thread may still hold the last tensors; if the interpreter ends now, it can abort or hang (torch 2.13).
    time.sleep(0.5)
    # The Trainer leaves its process group open.
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
