"""The protection of the server: requests need a known host, the page's own origin, and perhaps a token."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

from fastapi import Request, Response
from fastapi.responses import PlainTextResponse, RedirectResponse

COOKIE = "pairsift_token"
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; img-src 'self'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
CallNext = Callable[[Request], Awaitable[Response]]


class Guard:
    """A middleware that refuses requests from the pages of other sites.

    A page of another site can make a browser send requests to this computer. Such a request names the other site as its
    origin, or, after DNS rebinding, as its host. A link that a person follows is let in: the other site cannot read
    the page.

    Args:
        hosts: Values of the Host header that are answered, such as `127.0.0.1:8000`; None for any, where there is a
            token, which a page of another site does not have.
        token: A secret that every request must bring, as a cookie, as a bearer token, or once as `?token=`; None where
            only this computer can connect.
    """

    def __init__(self, hosts: set[str] | None, token: str | None) -> None:
        self._hosts, self._token = hosts, token

    async def __call__(self, request: Request, call_next: CallNext) -> Response:
        """Respond to a request, or refuse it with a reason."""
        response = self._refusal(request) or await call_next(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    def _refusal(self, request: Request) -> Response | None:
        """Return the response to a request that is refused; None for all others."""
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if self._hosts is not None and host not in self._hosts:
            return PlainTextResponse("this host is not served here", 421)
        is_foreign = origin is not None and origin.partition("://")[2] != host
        is_inside = request.headers.get("sec-fetch-site", "none") in ("same-origin", "none")
        if is_foreign or not (is_inside or _is_link(request)):
            return PlainTextResponse("requests of other sites are refused", 403)
        return None if self._token is None else self._without_token(request)

    def _without_token(self, request: Request) -> Response | None:
        """Return the response to a request without the token; after `?token=`, a redirection to the page."""
        given = request.query_params.get("token")
        if given is not None and request.method == "GET" and self._is_token(given):
            response = RedirectResponse(str(request.url.remove_query_params("token")), 303)
            response.set_cookie(COOKIE, given, httponly=True, samesite="lax")
            return response
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._is_token(request.cookies.get(COOKIE, "")) or self._is_token(bearer):
            return None
        return PlainTextResponse("open the address with the token that pairsift serve printed", 401)

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())


def _is_link(request: Request) -> bool:
    """Return whether a person opened a page by a link."""
    mode, target = request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-dest")
    return request.method == "GET" and mode == "navigate" and target == "document"
