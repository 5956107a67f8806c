import torch


def main(world_size):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = torch.nn.Linear(2, 2)
    if world_size > 1:
        net = torch.nn.parallel.DistributedDataParallel(net)
    net = net.to(device)
