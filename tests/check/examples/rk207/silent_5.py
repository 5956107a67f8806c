import torch.distributed as dist

def share(config):
    if dist.get_rank() == 0:
        box = [config]
        dist.broadcast_object_list(box, src=0)
    else:
        box = [None]
        dist.broadcast_object_list(box, src=0)
    return box[0]
