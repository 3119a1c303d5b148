"""A page in the user's browser: opened without a shell, and only if it is a page."""

from __future__ import annotations

from mooring.core.egress import check_url

__all__ = ["open_in_browser"]


def open_in_browser(url: str) -> bool:
    """Whether the page could be opened. It blocks as long as some browsers run: call it from a thread.

    Raises:
        RefusedError: it is no https page (http only on this machine), or holds what does not belong there.
    """
    import webbrowser

    # The standard library starts the browser with the address as one argument; by what was checked, it
    # begins with a scheme and so is never taken for an option.
    check_url(url, "the page", allowed=("loopback", "private"))
    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False
