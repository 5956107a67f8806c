"""A transformer block with DeepSpeed."""

import argparse

import deepspeed
import torch
from torch import nn
from torch.utils.data import TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    args = parser.parse_args()

    torch.manual_seed(0)
    data = TensorDataset(torch.randn(1024, 16, 64), torch.randn(1024, 16, 64))
    model = nn.TransformerEncoderLayer(64, 4, batch_first=True)
    engine, _, loader, _ = deepspeed.initialize(
        args, model, model_parameters=model.parameters(), training_data=data
    )
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(engine(inputs.to(engine.device)), targets.to(engine.device))
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()
