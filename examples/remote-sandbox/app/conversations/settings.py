"""What the application is told by its environment."""

import os
import uuid
from dataclasses import dataclass

SERVICE_URL = os.environ["SANDBOXD_URL"]
SERVICE_TOKEN = os.environ["SANDBOXD_TOKEN"]
RUNTIME = os.environ.get("APP_RUNTIME", "python")
DATABASE = os.environ.get("APP_DATABASE", "/data/conversations.db")


@dataclass(frozen=True)
class User:
    """Somebody who has signed in."""

    user_id: uuid.UUID
    tenant_id: uuid.UUID
    is_operator: bool


def users() -> dict[str, User]:
    """Reads APP_USERS: `token=user:tenant[:operator]`, separated by commas.

    It stands for the sign-in that a real application has.
    """
    found = {}
    for entry in filter(None, os.environ.get("APP_USERS", "").split(",")):
        token, _, rest = entry.partition("=")
        user_id, tenant_id, *role = rest.split(":")
        found[token] = User(uuid.UUID(user_id), uuid.UUID(tenant_id), role == ["operator"])
    return found


USERS = users()
