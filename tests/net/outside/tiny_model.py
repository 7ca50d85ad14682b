"""A language model of half a megabyte with random weights, as a file that llama.cpp loads: it says nonsense, in real streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WIDTH, LAYERS, HEADS, HIDDEN, CONTEXT = 64, 2, 4, 128, 2048
SPECIAL, BYTES = 3, 256
"""Tokens that are no letters: those of the tokenizer's own, and single bytes. Letters follow."""
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "


def write_tiny_model(path: Path) -> None:
    """Write the model, the same one each time."""
    import gguf
    import numpy

    random: Any = numpy.random.default_rng(0)
    writer: Any = gguf.GGUFWriter(str(path), "llama")
    size = _add_words(writer, gguf)
    _add_shape(writer, gguf, size)

    def weights(name: str, *shape: int, silent: int = 0) -> None:
        values = (random.standard_normal(shape) * 0.3).astype(numpy.float32)
        values[:silent] = 0  # never among the likely ones: no answer ends by chance, and no token is half a character
        writer.add_tensor(name, values)

    def ones(name: str) -> None:
        writer.add_tensor(name, numpy.ones(WIDTH, numpy.float32))

    weights("token_embd.weight", size, WIDTH)
    ones("output_norm.weight")
    weights("output.weight", size, WIDTH, silent=SPECIAL + BYTES)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        for name in ("attn_norm", "ffn_norm"):
            ones(f"{block}{name}.weight")
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights(f"{block}{name}.weight", WIDTH, WIDTH)
        for name in ("ffn_gate", "ffn_up"):
            weights(f"{block}{name}.weight", HIDDEN, WIDTH)
        weights(f"{block}ffn_down.weight", WIDTH, HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_words(writer: Any, gguf: Any) -> int:
    """A tokenizer of bytes and printable letters; how many tokens it has."""
    kinds = gguf.TokenType
    words: list[tuple[bytes, Any, float]] = [
        (b"<unk>", kinds.UNKNOWN, 0.0),
        (b"<s>", kinds.CONTROL, 0.0),
        (b"</s>", kinds.CONTROL, 0.0),
    ]
    words += [(f"<0x{byte:02X}>".encode(), kinds.BYTE, 0.0) for byte in range(BYTES)]
    words += [((chr(code) if code != 32 else "\u2581").encode(), kinds.NORMAL, -float(code)) for code in range(32, 127)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([word for word, _, _ in words])
    writer.add_token_types([kind for _, kind, _ in words])
    writer.add_token_scores([score for _, _, score in words])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(TEMPLATE)
    return len(words)


def _add_shape(writer: Any, gguf: Any, size: int) -> None:
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(size)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
