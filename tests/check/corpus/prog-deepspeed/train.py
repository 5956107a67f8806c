"""DeepSpeed's engine holds model, optimizer and loader."""

import deepspeed
import torch
from torchvision import datasets, transforms

CONFIG = {
    "train_micro_batch_size_per_gpu": 32,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "zero_optimization": {"stage": 2},
    "bf16": {"enabled": True},
}


def main():
    deepspeed.init_distributed()
    data = datasets.ImageFolder(
        "data/train", transforms.Compose([transforms.Resize((64, 64)), transforms.ToTensor()])
    )
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 100))
    engine, _, loader, _ = deepspeed.initialize(
        model=net, model_parameters=net.parameters(), training_data=data, config=CONFIG
    )
    for epoch in range(3):
        for images, labels in loader:
            images, labels = images.to(engine.device).bfloat16(), labels.to(engine.device)
            loss = torch.nn.functional.cross_entropy(engine(images).float(), labels)
            engine.backward(loss)
            engine.step()
        engine.save_checkpoint("snapshots", tag=f"epoch-{epoch}")


if __name__ == "__main__":
    main()
