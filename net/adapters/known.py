"""What is known of models by their names: context windows and output limits, in tokens, as of November 2026.

Sources: the pages of the models in the documentation of OpenAI and "Models overview" and "Context windows" in that of Anthropic.
The tables are by the beginning of a name, the longest that fits counts, so that a dated snapshot is found under its model. A name
that is not here is unknown, which is no error: `windows=` of an adapter says what this table does not know, or knows wrongly.
"""

from __future__ import annotations

OPENAI_WINDOWS: dict[str, int] = {
    "gpt-5.4": 1_050_000,
    "gpt-5.4-mini": 400_000,
    "gpt-5.4-nano": 400_000,
    "gpt-5.3-chat": 128_000,
    "gpt-5.2": 400_000,
    "gpt-5.2-chat": 128_000,
    "gpt-5.1": 400_000,
    "gpt-5.1-chat": 128_000,
    "gpt-5-": 400_000,
    "gpt-5-chat": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-4o": 128_000,
    "chatgpt-4o": 128_000,
    "gpt-4-turbo": 128_000,
    "gpt-3.5-turbo": 16_385,
    "o1-": 200_000,
    "o1-mini": 128_000,
    "o1-preview": 128_000,
    "o3": 200_000,
    "o4-mini": 200_000,
}
OPENAI_EXACT: dict[str, int] = {"gpt-5": 400_000, "o1": 200_000, "gpt-4": 8_192}
"""Names that are the beginning of models with other windows."""

ANTHROPIC_WINDOWS: dict[str, int] = {
    "claude-": 200_000,
    "claude-fable-5": 1_000_000,
    "claude-mythos-5": 1_000_000,
    "claude-opus-5": 1_000_000,
    "claude-opus-4-8": 1_000_000,
    "claude-opus-4-7": 1_000_000,
    "claude-opus-4-6": 1_000_000,
    "claude-sonnet-5": 1_000_000,
    "claude-sonnet-4-6": 1_000_000,
    "claude-haiku-5-5": 1_000_000,
}

ANTHROPIC_OUTPUTS: dict[str, int] = {
    "claude-": 32_000,  # at least, of every one since Claude 4
    "claude-2": 4_096,
    "claude-instant": 4_096,
    "claude-3": 4_096,
    "claude-3-5": 8_192,
    "claude-3-7": 64_000,
    "claude-opus-4": 32_000,
    "claude-opus-4-5": 64_000,
    "claude-sonnet-4": 64_000,
    "claude-haiku-4": 64_000,
    "claude-opus-4-6": 128_000,
    "claude-opus-4-7": 128_000,
    "claude-opus-4-8": 128_000,
    "claude-sonnet-4-6": 128_000,
}

ANTHROPIC_WITHOUT_SCHEMA: tuple[str, ...] = (
    "claude-2",
    "claude-3",
    "claude-instant",
    "claude-opus-4-0",
    "claude-opus-4-2",  # dated snapshots: claude-opus-4-20250514
    "claude-sonnet-4-0",
    "claude-sonnet-4-2",
)
"""Models that came before answers by a schema."""

ANTHROPIC_WITHOUT_EFFORT: tuple[str, ...] = (
    *ANTHROPIC_WITHOUT_SCHEMA,
    "claude-opus-4-1",
    "claude-sonnet-4-5",
    "claude-haiku-4-5",
)
"""Models that know thinking by a budget of tokens only, or not at all."""
