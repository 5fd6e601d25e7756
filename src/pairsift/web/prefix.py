"""The path below which a proxy serves the pages, where it passes this path on."""

from __future__ import annotations

from urllib.parse import unquote

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send


def below(prefix: str, app: ASGIApp) -> ASGIApp:
    """Return an application that answers below a path too, such as `/proxy/absolute/8765`.

    Args:
        prefix: The path, as the browser shows it; empty for none.
        app: The application, whose pages have relative addresses.
    """
    path = f"/{unquote(prefix).strip('/')}"

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        asked = scope.get("path", "")
        if asked == path:  # without the last slash, relative addresses would start one folder above
            query = scope["query_string"].decode("latin-1")
            await RedirectResponse(f"{path}/?{query}" if query else f"{path}/")(scope, receive, send)
            return
        cut = asked.removeprefix(path) if asked.startswith(f"{path}/") else asked
        await app({**scope, "path": cut} if "path" in scope else scope, receive, send)

    return answer if path != "/" else app
