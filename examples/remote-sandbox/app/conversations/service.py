"""What the application asks of sandboxd itself, with the service token."""

import httpx
from pydantic_ai_backends.remote import TOKEN_HEADER

from . import settings

HEADERS = {TOKEN_HEADER: settings.SERVICE_TOKEN}
OPENINGS_SECS = 60.0


class ServiceError(Exception):
    """What sandboxd refused, or that it was not reached."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


async def _ask(method: str, path: str, **how) -> httpx.Response:
    try:
        async with httpx.AsyncClient(base_url=settings.SERVICE_URL, timeout=OPENINGS_SECS) as client:
            response = await client.request(method, path, headers=HEADERS, **how)
    except httpx.HTTPError as error:
        raise ServiceError(502, f"the sandbox service was not reached: {error}") from error
    if response.is_error:
        raise ServiceError(response.status_code, response.text)
    return response


async def capacity() -> dict:
    """How many sandboxes there are, of how many; needs no token."""
    return (await _ask("GET", "/healthz")).json()


async def sessions() -> list[dict]:
    """The live sessions, with what each uses of its ceilings."""
    return (await _ask("GET", "/sessions", params={"usage": True})).json()["sessions"]


async def events(session_id: str) -> list[dict]:
    """What was done in a session, the newest last."""
    return (await _ask("GET", f"/sessions/{session_id}/events")).json()["events"]


async def end(session_id: str) -> None:
    """Ends a session and keeps its files. That it has ended already is no error."""
    try:
        await _ask("DELETE", f"/sessions/{session_id}")
    except ServiceError as error:
        if error.status != 404:
            raise


async def purge(session_id: str) -> None:
    """Removes all that an id ever had: container, files and record.

    It asks by id, so it works whatever became of the session: open, asleep, reaped long ago,
    or never opened. The client library's own `stop(purge=True)` sends nothing for a sandbox
    that this process has not used.
    """
    await _ask("DELETE", f"/workspaces/{session_id}", params={"close": True})
