from accelerate import Accelerator

accelerator = Accelerator()
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for step, batch in enumerate(loader):
    accelerator.backward(model(batch))
    optimizer.step()
    optimizer.zero_grad()
    if accelerator.is_main_process and step % 500 == 0:
        accelerator.save_state(f"checkpoint-{step}")
