"""Keeps the conversations: who takes part in which, and which sandbox it has."""

import sqlite3
import uuid
from dataclasses import dataclass

from . import settings
from .scopes import Scope


@dataclass(frozen=True)
class Conversation:
    """One conversation."""

    conversation_id: uuid.UUID
    user_id: uuid.UUID
    tenant_id: uuid.UUID
    scope: Scope


def connect() -> sqlite3.Connection:
    """Opens the database, which is made where it is missing."""
    database = sqlite3.connect(settings.DATABASE, isolation_level=None)
    database.execute(
        "CREATE TABLE IF NOT EXISTS conversations"
        " (id TEXT PRIMARY KEY, user_id TEXT, tenant_id TEXT, scope TEXT)"
    )
    return database


def add(user: settings.User, scope: Scope) -> Conversation:
    """Begins a conversation under an id that nobody can guess."""
    conversation = Conversation(uuid.uuid4(), user.user_id, user.tenant_id, scope)
    row = (conversation.conversation_id, user.user_id, user.tenant_id)
    with connect() as database:
        database.execute(
            "INSERT INTO conversations VALUES (?, ?, ?, ?)", [*map(str, row), scope]
        )
    return conversation


def find(conversation_id: uuid.UUID) -> Conversation | None:
    """Finds a conversation."""
    with connect() as database:
        row = database.execute(
            "SELECT user_id, tenant_id, scope FROM conversations WHERE id = ?",
            [str(conversation_id)],
        ).fetchone()
    if row is None:
        return None
    user_id, tenant_id, scope = row
    return Conversation(conversation_id, uuid.UUID(user_id), uuid.UUID(tenant_id), scope)


def remove(conversation_id: uuid.UUID) -> None:
    """Forgets a conversation."""
    with connect() as database:
        database.execute("DELETE FROM conversations WHERE id = ?", [str(conversation_id)])
