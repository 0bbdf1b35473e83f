"""The models and batches both sides are measured on."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """A Qwen2 model and the batch it is trained on."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    sequences: int
    length: int

    @property
    def tokens(self):
        return self.sequences * self.length

    def describe(self):
        return (
            f"hidden {self.hidden}, {self.layers} layers, {self.heads}/{self.kv_heads} heads, "
            f"ffn {self.ffn}, vocab {self.vocab}; {self.sequences} x {self.length} tokens"
        )


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("quickstart", 128, 4, 4, 2, 384, 600, 25, 160),
        Shape("5m", 256, 6, 4, 2, 704, 2048, 16, 512),
        Shape("25m", 512, 8, 8, 4, 1408, 2048, 16, 512),
    )
}

# In which numbers matrices are multiplied; weights, optimiser and sums are f32 with both.
NUMBERS = ("f32", "bf16")

# Batched sampling: prompts, their length, new tokens for each.
PROMPTS, PROMPT_LENGTH, NEW_TOKENS = 64, 128, 64
