"""Derives the ids of sandboxes: who shares one is decided here, and nowhere else."""

import uuid
from dataclasses import dataclass
from typing import Literal

Scope = Literal["run", "conversation", "user", "agent"]


@dataclass(frozen=True)
class Context:
    """Whose turn it is, and in which conversation. Every id is a UUID that we made."""

    tenant_id: uuid.UUID
    user_id: uuid.UUID
    agent_id: uuid.UUID
    conversation_id: uuid.UUID
    run_id: uuid.UUID


def key(scope: Scope, context: Context) -> uuid.UUID:
    """Returns what a scope's sandbox belongs to."""
    match scope:
        case "run":
            return context.run_id
        case "conversation":
            return context.conversation_id
        case "user":
            return context.user_id
        case "agent":
            return context.agent_id


def session_id_for(scope: Scope, context: Context) -> str:
    """Names the sandbox: 43 characters, of which nobody guesses the last 32.

    The tenant and the scope in front are for people who read listings; what keeps one
    conversation from another's files is that the rest is a random UUID.
    """
    return f"{context.tenant_id.hex[:8]}-{scope[0]}-{key(scope, context).hex}"
