"""The words of `/status`. Pure."""

from __future__ import annotations

from datetime import datetime

from ...values import AgentInfo, Wait


def status_text(info: AgentInfo, *, model: str | None, now: datetime) -> str:
    """What a person wants to know of an agent, a line each; what is not so has no line."""
    lines = [f"{info.definition}: {_doing(info)}"]
    # Not for the disk: whoever reads this has an answer that is on it.
    lines.extend(f"  waits for {_wait(wait, now)}" for wait in info.waits if wait.kind != "commit")
    lines.append(f"Inbox: {info.pending - info.parked} waiting, {info.parked} parked")
    lines.append(f"Model: {model or 'none'}")
    if info.context_tokens is not None:
        lines.append(f"Context: {_context(info.context_tokens, info.context_window)}")
    used = info.usage
    taken, given = used.input + used.cache_read + used.cache_write, used.output + used.reasoning
    lines.append(f"Used: {used.total:,} tokens ({taken:,} in, {given:,} out)")
    if info.children:
        lines.append(f"Children: {', '.join(info.children)}")
    if info.unsent or info.lost:
        lines.append(f"Replies: {info.unsent} under way, {len(info.lost)} failed")
        lines.extend(f"  {lost}" for lost in info.lost)
    return "\n".join(lines)


def _doing(info: AgentInfo) -> str:
    if info.status == "running":
        return f"turn {info.turn}, step {info.step}" if info.step else f"turn {info.turn}"
    return info.status if info.turn == 0 else f"{info.status} after turn {info.turn}"


def _wait(wait: Wait, now: datetime) -> str:
    text = f"{wait.kind} {wait.what}" if wait.what else str(wait.kind)
    if wait.since is not None:
        text += f", for {_span((now - wait.since).total_seconds())}"
    if wait.until is not None:
        text += f", until {wait.until.astimezone(now.tzinfo):%Y-%m-%d %H:%M:%S}"
    return text


def _context(tokens: int, window: int | None) -> str:
    if not window:
        return f"about {tokens:,} tokens"
    return f"about {tokens:,} of {window:,} tokens ({100 * tokens / window:.0f} %)"


def _span(seconds: float) -> str:
    seconds = max(seconds, 0)
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
