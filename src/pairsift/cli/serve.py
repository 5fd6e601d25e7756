"""The verb `serve`: the review queue in a browser."""

from __future__ import annotations

import secrets
from pathlib import Path

import click

from pairsift.cli.shared import RUN, SOURCE
from pairsift.errors import InputError

EVERYWHERE = ("0.0.0.0", "::")  # all addresses of this computer


@click.command()
@RUN
@SOURCE
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; any other needs a token.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="Port; 0 for a free one.")
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="Name in the address of a proxy or tunnel, such as hub.example.org; localhost needs none. Repeatable.",
)
@click.option("--prefix", default="", metavar="PATH", help="Path of a proxy that passes it on, such as /review.")
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
def serve(run: Path, source: str | None, host: str, port: int, names: tuple[str, ...], prefix: str, show: bool) -> None:
    """Review a run's pairs in a browser: keep, drop, or give a new caption."""
    try:
        import uvicorn

        from pairsift.web.app import create_app
        from pairsift.web.current import CurrentRun
        from pairsift.web.guard import host_name, is_loopback
        from pairsift.web.prefix import below
    except ModuleNotFoundError as error:
        raise InputError(f"serve needs {error.name}: run `pip install 'pairsift[serve]'`") from None
    import socket

    hosts = set(map(host_name, names))
    if "" in hosts:
        raise InputError("--allow-host takes the name of a computer, such as hub.example.org")
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(1024)  # so that the printed address can be opened at once
    except OSError as error:
        raise InputError(f"{host} port {port}: {error.strerror}; give another --port or --host") from error
    port = listening.getsockname()[1]
    token = None if is_loopback(host) else secrets.token_urlsafe(24)
    name = socket.gethostname() if host in EVERYWHERE else f"[{host}]" if ":" in host else host
    app = below(prefix, CurrentRun(run, lambda: create_app(run, hosts, token, source)))
    address = f"http://{name}:{port}/" + (f"?token={token}" if token else "")
    print(f"reviewing {run} at {address} (stop with Ctrl+C)", flush=True)
    if show:
        click.launch(address)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", server_header=False)).run(sockets=[listening])
