"""The protection of the server: requests need a known host, the page's own origin, and perhaps a token."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Collection
from urllib.parse import urlsplit

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
    origin, or, after DNS rebinding, as its host. The names of this computer, such as `localhost`, are nobody else's at
    any port, so that a tunnel may end at another port. A link that a person follows is let in: the other site cannot
    read the page.

    Args:
        hosts: Names that are answered beside those of this computer, such as the name of a proxy.
        token: A secret that every request must bring, as a cookie, as a bearer token, or once as `?token=`; None where
            only this computer can connect. With it, all names are answered: a page of another site does not have it.
    """

    def __init__(self, hosts: Collection[str], token: str | None) -> None:
        self._hosts, self._token = hosts, token

    async def __call__(self, request: Request, call_next: CallNext) -> Response:
        """Respond to a request, or refuse it with a reason."""
        response = self._refusal(request) or await call_next(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    def _refusal(self, request: Request) -> Response | None:
        """Return the response to a request that is refused; None for all others."""
        name = host_name(request.headers.get("host", ""))
        if self._token is None and not (is_loopback(name) or name in self._hosts):
            advice = f"to review at this address, start it with --allow-host {name or 'NAME'}"
            return PlainTextResponse(f"pairsift serve answers at localhost only; {advice}", 421)
        if (reason := self._of_other_site(request)) is not None:
            return PlainTextResponse(reason, 403)
        return None if self._token is None else self._without_token(request)

    def _of_other_site(self, request: Request) -> str | None:
        """Return a refusal where a page of another site sent a request; None where no page or this page did."""
        site, origin = request.headers.get("sec-fetch-site", "none"), request.headers.get("origin")
        if site == "same-origin" or _is_link(request):  # a browser says so, whatever a proxy made of the host
            return None
        refusal = "requests of other sites are refused"
        if site != "none":
            return refusal
        if origin is None or origin.partition("://")[2] == request.headers.get("host"):
            return None
        name = host_name(origin) if "://" in origin else ""
        if name in self._hosts:
            return None
        return f"{refusal}; if {name} is your proxy, start pairsift serve with --allow-host {name}" if name else refusal

    def _without_token(self, request: Request) -> Response | None:
        """Return the response to a request without the token; after `?token=`, a redirection to the page."""
        given = request.query_params.get("token")
        if given is not None and request.method == "GET" and self._is_token(given):
            # Both are relative to what the browser sees, which a proxy may have cut the first part from.
            page = request.url.path.rpartition("/")[2] or "./"
            query = request.url.remove_query_params("token").query
            response = RedirectResponse(f"{page}?{query}" if query else page, 303)
            response.set_cookie(COOKIE, given, path=None, httponly=True, samesite="lax")
            return response
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._is_token(request.cookies.get(COOKIE, "")) or self._is_token(bearer):
            return None
        return PlainTextResponse("open the address with the token that pairsift serve printed", 401)

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())


def host_name(address: str) -> str:
    """Return the name of the computer in a Host header, an origin or a whole address; empty where there is none."""
    try:
        return urlsplit(address if "://" in address else f"//{address}").hostname or ""
    except ValueError:
        return ""


def is_loopback(name: str) -> bool:
    """Return whether a name or an address always means the computer that asks."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _is_link(request: Request) -> bool:
    """Return whether a person opened a page by a link."""
    mode, target = request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-dest")
    return request.method == "GET" and mode == "navigate" and target == "document"
