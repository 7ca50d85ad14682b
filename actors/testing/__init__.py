"""What programs that use Callboard need for their own tests: a scripted model, and the replies of its scripts."""

from __future__ import annotations

from .scripted import Reply, ScriptedModel

__all__ = ["Reply", "ScriptedModel"]
