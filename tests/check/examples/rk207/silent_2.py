import lightning as L

def main(model, data):
    trainer = L.Trainer(devices=4, num_nodes=2)
    trainer.fit(model, data)
    trainer.save_checkpoint("last.ckpt")
    if trainer.is_global_zero:
        print("saved")
