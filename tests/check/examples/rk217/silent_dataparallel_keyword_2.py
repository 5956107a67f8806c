from mytools import DataParallel

model = DataParallel(None, gpu_ids=[0, 1])
