"""The tiny checkpoint's tokenizer: byte-level BPE trained on a page of text that stands here."""

from collections.abc import Iterator

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.trainers import BpeTrainer
from transformers import Qwen2Tokenizer

from runtime.quality.words import COLOURS, DIGITS, SHAPES

MERGED_TOKENS = 700  # bytes and merges; the markers come behind them

MARKERS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<|audio_pad|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
)

# Qwen's rule for where merges may not cross.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string -%}{{ message.content }}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'audio' -%}<|audio_start|><|audio_pad|><|audio_end|>
{%- elif part.type == 'image' -%}<|vision_start|><|image_pad|><|vision_end|>
{%- elif part.type == 'video' -%}<|vision_start|><|video_pad|><|vision_end|>
{%- else -%}{{ part.text }}{%- endif -%}
{%- endfor -%}
{%- endif -%}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""

PAGE = """\
system
user
assistant
You are a helpful assistant. You hear, see and read, and you answer in short sentences.
Describe what you hear and see. What is the colour of the shape? Which tone did you hear?
The quick brown fox jumps over the lazy dog. A stitch in time saves nine.
How many people are in the picture? There are two people, and one of them is speaking.
Please read the sign on the left, then tell me when the light turns green.
The music starts softly, grows louder for ten seconds and then stops at once.
First comes the video, then the audio that belongs to it, and the text follows both.
Somebody knocks at the door three times; the dog barks, and a woman says good morning.
I think the answer is yes, because the red line was crossed and nobody noticed in time.
The weather today is cold and clear. Tomorrow it will rain in the north and by the sea.
Can you hear me? Yes, I can hear you well. Could you say that again, a little slower?
A man walks from the right to the left, picks up the blue bag and leaves the room.
The train leaves at seven thirty from platform four. It takes about an hour to get there.
Keep the camera still for a moment. Now move it slowly to the right. Thank you.
Which digits do you hear? What do you hear? Read me the digits. Which digit follows seven?
Which colours do you see? What do you see? Name the colours. Which shapes do you see?
Which colour and digit come together? What do you see and hear? Describe what you see and hear.
Which colour is the shape? What is in the picture? Say red seven. Repeat red seven.
Which digit comes with red? Which colour comes with seven?
zero one two three four five six seven eight nine ten hundred thousand
red green blue yellow white black purple orange circle square triangle cross
early late high low loud quiet fast slow open closed before after between under over
Monday Tuesday Wednesday Thursday Friday Saturday Sunday morning evening night
请描述一下视频和音频里的内容。你看到了什么？你听到了什么？
你好，世界。今天的天气很好，我们一起出去走走吧。
画面左边有一个红色的圆形，右边有一个蓝色的方形。
请再说一遍，说得慢一点。谢谢你，我听清楚了。
"""


def build() -> Qwen2Tokenizer:
    """Train it (a fraction of a second, always the same) and wrap it as the real one is."""
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=MERGED_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_lines(), trainer)
    bpe.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in MARKERS])
    tokenizer = Qwen2Tokenizer(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=131_072,
        extra_special_tokens={
            "image_token": "<|image_pad|>",
            "audio_token": "<|audio_pad|>",
            "video_token": "<|video_pad|>",
            "vision_bos_token": "<|vision_start|>",
            "vision_eos_token": "<|vision_end|>",
            "audio_bos_token": "<|audio_start|>",
            "audio_eos_token": "<|audio_end|>",
        },
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _lines() -> Iterator[str]:
    """The page, its roles often enough that each becomes one token (the Talker relies on it)."""
    for _ in range(8):
        yield from PAGE.splitlines(keepends=True)
    yield from ["system\n", "user\n", "assistant\n"] * 100
    for word in (*DIGITS, *COLOURS, *SHAPES):
        yield from [word, f" {word}"] * 100
