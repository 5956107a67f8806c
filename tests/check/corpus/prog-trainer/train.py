"""The Trainer of transformers: it shards, wraps and saves."""

from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments


def main():
    name = "bert-base-uncased"
    tokenizer = AutoTokenizer.from_pretrained(name)
    data = load_dataset("imdb")
    data = data.map(lambda rows: tokenizer(rows["text"], truncation=True, max_length=256), batched=True)
    model = AutoModelForSequenceClassification.from_pretrained(name, num_labels=2)
    arguments = TrainingArguments(
        "out",
        per_device_train_batch_size=16,
        num_train_epochs=2,
        eval_strategy="epoch",
        ddp_find_unused_parameters=False,
    )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model("out/last")


if __name__ == "__main__":
    main()
