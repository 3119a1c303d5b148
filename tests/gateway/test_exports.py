"""The names that `mooring.gateway` exports."""

import subprocess
import sys

import pytest

import mooring.gateway
from mooring.gateway.asgi import asgi_app
from mooring.gateway.serve import Serving, serve_http, serve_stdio
from mooring.transport.forwarding import ClientBridge


def test_the_entry_points_are_importable_from_the_package() -> None:
    exported = [getattr(mooring.gateway, name) for name in mooring.gateway.__all__]
    assert exported == [ClientBridge, Serving, asgi_app, serve_http, serve_stdio]
    assert set(mooring.gateway.__all__) <= set(dir(mooring.gateway))
    with pytest.raises(AttributeError, match="no attribute 'unknown'"):
        mooring.gateway.unknown  # noqa: B018


def test_importing_the_package_imports_none_of_its_modules() -> None:
    program = (
        "import sys, mooring.gateway\n"
        "heavy = [name for name in sys.modules if name.startswith('mooring.gateway.') or name == 'aiohttp']\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
