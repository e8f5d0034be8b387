"""A tiny random transformers model with a tiny tokenizer, for tests of numerics."""

from pathlib import Path

TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'system' and loop.index0 %}{{ raise_exception('one system') }}"
    "{% endif %}<{{ message.role }}> {{ message.content }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)


def make_model(folder: Path, *, template: str | None = TEMPLATE) -> None:
    """A random two-layer Llama and a word-level tokenizer with 40 words."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = ["<unk>", "<end>", "<user>", "<system>", "<assistant>", "cat", "dog", "tree", "sun", "moon", "river"]
    words += [f"w{i}" for i in range(29)]
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>", unk_token="<unk>")
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=1,
        initializer_range=0.4,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def make_byte_model(folder: Path, *, template: str | None = TEMPLATE) -> None:
    """A random two-layer Llama that reads any text byte by byte."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    special = ["<pad>", "<end>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE({word: i for i, word in enumerate([*special, *letters])}, []))
    raw.add_special_tokens(special)
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>", pad_token="<pad>")
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(special) + len(letters),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=None,
        eos_token_id=1,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
