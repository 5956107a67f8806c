import torch
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank = comm.Get_rank()
if rank == 0:
    mean = comm.allreduce(1.0) / comm.Get_size()
    print(torch.tensor(mean))
