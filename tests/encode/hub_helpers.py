"""A tokenizer of a few words, as models of transformers have it in their folders."""

from pathlib import Path

WORDS = ["a", "dog", "runs", "on", "grass", "two", "children", "play", "in", "the", "red", "snow", "house", ".", ","]


def save_tokenizer(folder: Path, length: int | None = 20, **options: str) -> None:
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(special + WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    names |= options if length is None else {"model_max_length": length, **options}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    fast.save_pretrained(folder)
