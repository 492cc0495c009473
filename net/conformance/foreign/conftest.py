"""Fixtures: a fresh server for each test that wants one. The order of the files."""

import pytest

import server as server_module


# They take longest, so they begin first.
LONG = ["test_client_library.py", "test_kazoo_suite.py"]


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.fixture
def start():
    """A function that starts a server with additional settings; all are removed afterwards."""
    servers = []

    def start_server(**config):
        server = server_module.Server(**config)
        servers.append(server)
        return server.start()

    yield start_server
    for server in servers:
        server.remove()


@pytest.fixture
def server(start):
    """A server with the usual settings."""
    return start()
