"""Fine-tunes a language model with the Trainer of transformers."""

from datasets import load_dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)


def main() -> None:
    tokenizer = AutoTokenizer.from_pretrained("distilbert-base-uncased")
    reviews = load_dataset("imdb", split="train")
    reviews = reviews.map(lambda rows: tokenizer(rows["text"], truncation=True, max_length=256), batched=True)
    model = AutoModelForSequenceClassification.from_pretrained("distilbert-base-uncased", num_labels=2)
    arguments = TrainingArguments("out", per_device_train_batch_size=16, num_train_epochs=1, bf16=True)
    trainer = Trainer(
        model, arguments, train_dataset=reviews, data_collator=DataCollatorWithPadding(tokenizer)
    )
    trainer.train()


if __name__ == "__main__":
    main()
