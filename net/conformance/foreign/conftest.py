"""Fixtures: a fresh server for each test that wants one."""

import pytest

import server as server_module


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
