"""Tiny models of colpali-engine with random weights, made from configurations: nothing is fetched."""

from __future__ import annotations

from typing import Any

WORDS = "describe the image user assistant query invoice total owl cat red blue a of page what is where".split()


#: The functions here.
NAMES = ("colpali", "colqwen2", "colqwen2_5", "colqwen3", "colidefics3", "colmodernvbert", "colgemma3")
#: Sizes of an encoder.
SMALL = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


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
    vision = SiglipVisionConfig(**SMALL, image_size=56, patch_size=14, projection_dim=32)
    text = GemmaConfig(vocab_size=len(words) + 1100, **SMALL, num_key_value_heads=1, head_dim=16, pad_token_id=0)
    pixels = SiglipImageProcessor(size={"height": 56, "width": 56})
    pixels.image_seq_length = 16
    processor = ColPaliProcessor(pixels, words)
    config = PaliGemmaConfig(vision_config=vision, text_config=text, image_token_index=processor.image_token_id, vocab_size=text.vocab_size, projection_dim=32, hidden_size=32)
    config.text_config.num_image_tokens = 16
    torch.manual_seed(1)
    return ColPali(config).eval(), processor


def _qwen_words() -> tuple[Any, dict[str, int]]:
    marks = "im_start im_end vision_start vision_end image_pad video_pad endoftext".split()
    words = tokenizer([f"<|{t}|>" for t in marks], "<|im_start|>", "<|im_end|>", "<|endoftext|>")
    return words, {t: words.convert_tokens_to_ids(f"<|{t}|>") for t in marks}


def _qwen_text(words: Any, ids: dict[str, int]) -> dict[str, Any]:
    rope = {"rope_type": "default", "type": "mrope", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
    return dict(
        vocab_size=len(words) + 10, **SMALL, num_key_value_heads=1, rope_scaling=rope, rope_parameters=rope,
        bos_token_id=ids["im_start"], eos_token_id=ids["im_end"], pad_token_id=ids["endoftext"],
    )  # fmt: skip


def _qwen_ids(ids: dict[str, int]) -> dict[str, int]:
    return dict(
        image_token_id=ids["image_pad"], video_token_id=ids["video_pad"], vision_start_token_id=ids["vision_start"],
        vision_end_token_id=ids["vision_end"],
    )  # fmt: skip


def colqwen2() -> tuple[Any, Any]:
    """Pages of any shape: one cell for 28 × 28 pixels of what the processor makes of them."""
    import torch
    from colpali_engine.models import ColQwen2, ColQwen2Processor
    from transformers import Qwen2VLConfig, Qwen2VLImageProcessor, Qwen2VLVideoProcessor

    words, ids = _qwen_words()
    pixels = Qwen2VLImageProcessor(min_pixels=4 * 28 * 28, max_pixels=40 * 28 * 28)
    processor = ColQwen2Processor(pixels, words, Qwen2VLVideoProcessor())
    vision = dict(depth=1, embed_dim=32, hidden_size=32, num_heads=2, mlp_ratio=1, patch_size=14, spatial_merge_size=2, temporal_patch_size=2)
    config = Qwen2VLConfig(text_config=_qwen_text(words, ids), vision_config=vision, **_qwen_ids(ids))
    torch.manual_seed(2)
    return ColQwen2(config).eval(), processor


def _idefics_words() -> Any:
    tiles = [f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7)]
    marks = ["<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", *tiles]
    return tokenizer(marks, "<|im_start|>", "<|im_end|>", "<|pad|>")


def colidefics3(split: bool = True) -> tuple[Any, Any]:
    """ColSmol's class: pages are cut into tiles of 32 × 32 pixels with 2 × 2 cells each, and the whole page comes last."""
    import torch
    from colpali_engine.models import ColIdefics3, ColIdefics3Processor
    from transformers import Idefics3Config, Idefics3ImageProcessor

    words = _idefics_words()
    pixels = Idefics3ImageProcessor(size={"longest_edge": 128}, max_image_size={"longest_edge": 32}, do_image_splitting=split)
    processor = ColIdefics3Processor(pixels, words, image_seq_len=4)
    config = Idefics3Config(
        image_token_id=words.convert_tokens_to_ids("<image>"), scale_factor=2, pad_token_id=0,
        vision_config=dict(**SMALL, image_size=32, patch_size=8),
        text_config=dict(model_type="llama", vocab_size=len(words) + 10, **SMALL, num_key_value_heads=2, pad_token_id=0),
    )
    torch.manual_seed(3)
    return ColIdefics3(config).eval(), processor


def colqwen2_5() -> tuple[Any, Any]:
    """As `colqwen2`."""
    import torch
    from colpali_engine.models import ColQwen2_5, ColQwen2_5_Processor
    from transformers import Qwen2_5_VLConfig, Qwen2VLImageProcessor, Qwen2VLVideoProcessor

    words, ids = _qwen_words()
    pixels = Qwen2VLImageProcessor(min_pixels=4 * 28 * 28, max_pixels=40 * 28 * 28)
    processor = ColQwen2_5_Processor(pixels, words, Qwen2VLVideoProcessor())
    vision = dict(
        depth=1, hidden_size=32, out_hidden_size=32, intermediate_size=32, num_heads=2, patch_size=14, spatial_merge_size=2,
        temporal_patch_size=2, window_size=112, fullatt_block_indexes=[0],
    )
    config = Qwen2_5_VLConfig(text_config=_qwen_text(words, ids), vision_config=vision, **_qwen_ids(ids))
    torch.manual_seed(4)
    return ColQwen2_5(config).eval(), processor


def colqwen3() -> tuple[Any, Any]:
    """As `colqwen2`, with 32 × 32 pixels."""
    import torch
    from colpali_engine.models import ColQwen3, ColQwen3Processor
    from transformers import Qwen2VLImageProcessor, Qwen3VLConfig, Qwen3VLVideoProcessor

    words, ids = _qwen_words()
    pixels = Qwen2VLImageProcessor(min_pixels=4 * 32 * 32, max_pixels=40 * 32 * 32, patch_size=16)
    processor = ColQwen3Processor(pixels, words, Qwen3VLVideoProcessor())
    vision = dict(
        depth=1, hidden_size=32, out_hidden_size=32, intermediate_size=32, num_heads=2, patch_size=16, spatial_merge_size=2,
        temporal_patch_size=2, deepstack_visual_indexes=[0], num_position_embeddings=64,
    )
    config = Qwen3VLConfig(text_config={**_qwen_text(words, ids), "head_dim": 16}, vision_config=vision, **_qwen_ids(ids))
    torch.manual_seed(5)
    return ColQwen3(config).eval(), processor


def colmodernvbert() -> tuple[Any, Any]:
    """As `colidefics3`."""
    import torch
    from colpali_engine.models import ColModernVBert, ColModernVBertProcessor
    from transformers import Idefics3ImageProcessor, ModernVBertConfig

    words = _idefics_words()
    pixels = Idefics3ImageProcessor(size={"longest_edge": 128}, max_image_size={"longest_edge": 32}, do_image_splitting=True)
    processor = ColModernVBertProcessor(pixels, words, image_seq_len=4)
    config = ModernVBertConfig(
        image_token_id=words.convert_tokens_to_ids("<image>"), pixel_shuffle_factor=2,
        vision_config=dict(**SMALL, image_size=32, patch_size=8),
        text_config=dict(vocab_size=len(words) + 10, **SMALL, pad_token_id=0),
    )
    torch.manual_seed(6)
    return ColModernVBert(config).eval(), processor


def colgemma3() -> tuple[Any, Any]:
    """Pages of 56 × 56 pixels, in 2 × 2 cells of 2 × 2 patches."""
    import torch
    from colpali_engine.models import ColGemma3, ColGemmaProcessor3
    from transformers import Gemma3Config, Gemma3ImageProcessor

    words = tokenizer(["<image_soft_token>", "<start_of_image>", "<end_of_image>"], "<bos>", "<eos>", "<pad>")
    words.boi_token, words.image_token, words.eoi_token = "<start_of_image>", "<image_soft_token>", "<end_of_image>"
    for name in ("boi_token", "image_token", "eoi_token"):
        setattr(words, name + "_id", words.convert_tokens_to_ids(getattr(words, name)))
    words.chat_template = (
        "{% for m in messages %}{% for c in m['content'] %}{% if c['type'] == 'image' %}<start_of_image>"
        "{% else %}{{ c['text'] }}{% endif %}{% endfor %}{% endfor %}"
    )
    processor = ColGemmaProcessor3(Gemma3ImageProcessor(size={"height": 56, "width": 56}), words, image_seq_length=4)
    config = Gemma3Config(
        mm_tokens_per_image=4, image_token_index=words.image_token_id, image_token_id=words.image_token_id,
        vision_config=dict(**SMALL, image_size=56, patch_size=14),
        text_config=dict(vocab_size=len(words) + 10, **SMALL, num_key_value_heads=1, head_dim=16, pad_token_id=0),
    )
    torch.manual_seed(7)
    return ColGemma3(config).eval(), processor
