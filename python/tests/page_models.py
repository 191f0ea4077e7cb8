"""Tiny models of colpali-engine with random weights, made from configurations: nothing is fetched."""

from __future__ import annotations

from typing import Any

WORDS = "describe the image user assistant query invoice total owl cat red blue a of page what is where".split()


def tokenizer(special: list[str], bos: str, eos: str, pad: str) -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = [pad, bos, eos, "<unk>", *special]
    vocabulary = {t: i for i, t in enumerate(dict.fromkeys([*names, *WORDS, *"abcdefghijklmnopqrstuvwxyz.,:!?\n0123456789"]))}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
    extra = [t for t in dict.fromkeys(special) if t not in (bos, eos, pad)]
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token=bos, eos_token=eos, pad_token=pad, unk_token="<unk>", additional_special_tokens=extra
    )


def colpali() -> tuple[Any, Any]:
    """Pages of 56 × 56 pixels, in 4 × 4 cells."""
    import torch
    from colpali_engine.models import ColPali, ColPaliProcessor
    from transformers import GemmaConfig, PaliGemmaConfig, SiglipImageProcessor, SiglipVisionConfig

    words = tokenizer(["<image>"], "<bos>", "<eos>", "<pad>")
    vision = SiglipVisionConfig(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=56, patch_size=14, projection_dim=32)
    text = GemmaConfig(vocab_size=len(words) + 1100, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=16, pad_token_id=0)
    pixels = SiglipImageProcessor(size={"height": 56, "width": 56})
    pixels.image_seq_length = 16
    processor = ColPaliProcessor(pixels, words)
    config = PaliGemmaConfig(vision_config=vision, text_config=text, image_token_index=processor.image_token_id, vocab_size=text.vocab_size, projection_dim=32, hidden_size=32)
    config.text_config.num_image_tokens = 16
    torch.manual_seed(1)
    return ColPali(config).eval(), processor


def colqwen2() -> tuple[Any, Any]:
    """Pages of any shape: one cell for 28 × 28 pixels of what the processor makes of them."""
    import torch
    from colpali_engine.models import ColQwen2, ColQwen2Processor
    from transformers import Qwen2VLConfig, Qwen2VLImageProcessor, Qwen2VLVideoProcessor

    marks = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<|endoftext|>"]
    words = tokenizer(marks, "<|im_start|>", "<|im_end|>", "<|endoftext|>")
    ids = {t: words.convert_tokens_to_ids(t) for t in marks}
    pixels = Qwen2VLImageProcessor(min_pixels=4 * 28 * 28, max_pixels=40 * 28 * 28)
    processor = ColQwen2Processor(pixels, words, Qwen2VLVideoProcessor())
    text = dict(
        vocab_size=len(words) + 10, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        rope_scaling={"type": "mrope", "mrope_section": [2, 3, 3]}, rope_theta=10000.0,
        bos_token_id=ids["<|im_start|>"], eos_token_id=ids["<|im_end|>"], pad_token_id=ids["<|endoftext|>"],
    )
    vision = dict(depth=1, embed_dim=32, hidden_size=32, num_heads=2, mlp_ratio=1, patch_size=14, spatial_merge_size=2, temporal_patch_size=2)
    config = Qwen2VLConfig(
        text_config=text, vision_config=vision, image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"],
    )
    torch.manual_seed(2)
    return ColQwen2(config).eval(), processor


def colidefics3(split: bool = True) -> tuple[Any, Any]:
    """ColSmol's class: pages are cut into tiles of 32 × 32 pixels with 2 × 2 cells each, and the whole page comes last."""
    import torch
    from colpali_engine.models import ColIdefics3, ColIdefics3Processor
    from transformers import Idefics3Config, Idefics3ImageProcessor

    tiles = [f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7)]
    marks = ["<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", *tiles]
    words = tokenizer(marks, "<|im_start|>", "<|im_end|>", "<|pad|>")
    pixels = Idefics3ImageProcessor(size={"longest_edge": 128}, max_image_size={"longest_edge": 32}, do_image_splitting=split)
    processor = ColIdefics3Processor(pixels, words, image_seq_len=4)
    config = Idefics3Config(
        image_token_id=words.convert_tokens_to_ids("<image>"), scale_factor=2, pad_token_id=0,
        vision_config=dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=8),
        text_config=dict(model_type="llama", vocab_size=len(words) + 10, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, pad_token_id=0),
    )
    torch.manual_seed(3)
    return ColIdefics3(config).eval(), processor
