"""A private authority, and the certificates that it signs."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization


class Authority:
    """No program on this machine trusts it unless it is configured to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.made = trustme.CA()
        self.file = folder / "ca.pem"
        self.made.cert_pem.write_to_path(str(self.file))

    def server(self, *names: str, clients: bool = False) -> ssl.SSLContext:
        """What a server of these names speaks with; `clients`: it wants to see a certificate as well."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.made.issue_cert(*(names or ("127.0.0.1", "localhost"))).configure_cert(context)
        if clients:
            context.verify_mode = ssl.CERT_REQUIRED
            self.made.configure_trust(context)
        return context

    def trusting(self) -> ssl.SSLContext:
        """What a browser that trusts it would use."""
        context = ssl.create_default_context()
        self.made.configure_trust(context)
        return context

    def client(self, name: str = "me") -> tuple[Path, Path]:
        """Files of a certificate and its key."""
        leaf = self.made.issue_cert(f"{name}@example.org")
        cert, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        cert.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        key.write_bytes(leaf.private_key_pem.bytes())
        return cert, key


def encrypted(key: Path, password: str) -> Path:
    """The same key in a file that wants a password."""
    plain = serialization.load_pem_private_key(key.read_bytes(), None)
    file = key.with_suffix(".locked")
    file.write_bytes(
        plain.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password.encode()),
        )
    )
    return file
