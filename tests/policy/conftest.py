from tests.gateway.conftest import serving

__all__ = ["serving"]
