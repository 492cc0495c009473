"""The dashboard in a real browser: Debian's chromium, driven by playwright."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import socket
import struct
import urllib.request

import pytest
from kazoo.client import KazooClient
from playwright.sync_api import expect, sync_playwright

from server import SUBJECT, Server, free_port

pytestmark = pytest.mark.skipif(SUBJECT != "ringkeeper", reason="Apache ZooKeeper has no dashboard")

SCREENS = ["overview", "throughput", "latency", "slow", "sessions", "watches", "settings"]

# Where screenshots go, if they are wanted.
SHOTS = os.environ.get("DASHBOARD_SHOTS")

SESSIONS = 10_000


def start(count=1, **config):
    """An ensemble, each server with an admin listener on a port of its own."""
    lines = {"admin.enableServer": "true", "admin.serverAddress": "127.0.0.1", "ringkeeper.slowRequestMs": "1"}
    if count > 1:
        lines |= {"initLimit": "10", "syncLimit": "5"}
        lines |= {f"server.{n}": f"127.0.0.1:{free_port()}:{free_port()}" for n in range(1, count + 1)}
    servers = [Server(**lines, **config, **{"admin.serverPort": free_port()}) for _ in range(count)]
    for number, server in enumerate(servers, 1):
        (server.data_dir / "myid").write_text(f"{number}\n")
    return servers


@contextlib.contextmanager
def running(servers):

    with concurrent.futures.ThreadPoolExecutor(len(servers)) as pool:
        try:
            list(pool.map(Server.start, servers))
            yield servers
        finally:
            for server in servers:
                server.remove()


def url(server):
    return f"http://127.0.0.1:{server.config['admin.serverPort']}/"


def tells(server, command):
    with urllib.request.urlopen(f"{url(server)}commands/{command}", timeout=10) as answer:
        return json.load(answer)


@contextlib.contextmanager
def client(*servers):
    kazoo = KazooClient(",".join(server.address for server in servers), timeout=20)
    kazoo.start()
    try:
        yield kazoo
    finally:
        kazoo.stop()
        kazoo.close()


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        # A sandbox of its own needs what containers do not permit.
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def ensemble():
    with running(start(3)) as servers, client(*servers) as kazoo:
        kazoo.create("/ephemeral", b"", ephemeral=True)
        kazoo.create("/watched", b"")
        kazoo.get("/watched", watch=lambda event: None)
        for number in range(50):
            kazoo.set("/watched", b"%d" % number)
            kazoo.get("/watched", watch=lambda event: None)
        yield servers


@contextlib.contextmanager
def opened(browser, server, screen="", **options):
    """A page, which may neither load anything from elsewhere nor log an error."""
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **options})
    page, wrong = context.new_page(), []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: request.url.startswith(url(server)) or wrong.append(request.url))
    page.goto(f"{url(server)}dashboard/#{screen}")
    page.wrong = wrong
    yield page
    context.close()
    assert wrong == []


def shot(page, name):
    if SHOTS:
        page.screenshot(path=str(pathlib.Path(SHOTS) / f"{name}.png"))


def heading(page):
    return page.locator("main h2")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
def test_every_screen_is_shown_at_any_width_and_in_both_colours(browser, ensemble, theme, width):
    backs = {"light": "rgb(246, 247, 249)", "dark": "rgb(20, 23, 28)"}
    viewport = {"width": width, "height": 800}
    with opened(browser, ensemble[0], color_scheme=theme, viewport=viewport) as page:
        expect(page.locator("#state")).to_contain_text("server 1")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == backs[theme]
        for screen in SCREENS:
            page.goto(f"{url(ensemble[0])}dashboard/#{screen}")
            expect(heading(page)).to_have_text(screen)
            expect(page.locator("main > div").first).not_to_be_empty()
            overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert overflow <= 0, screen


def test_screens_show_what_the_server_tells(browser, ensemble):
    leader = next(s for s in ensemble if tells(s, "ensemble")["server_state"] == "leader")
    with opened(browser, leader) as page:
        expect(page.locator("tbody tr")).to_have_count(3)
        expect(page.get_by_text("none", exact=True).first).to_be_visible()
    holder = next(s for s in ensemble if tells(s, "watch_summary")["num_total_watches"])
    with opened(browser, holder, "sessions") as page:
        row = page.locator("tbody tr", has_text="/ephemeral")
        expect(row).to_contain_text("127.0.0.1:")
        expect(row).to_contain_text("/watched")
    with opened(browser, holder, "watches") as page:
        expect(page.locator("tbody").first).to_contain_text("/watched")
    with opened(browser, holder, "slow") as page:
        expect(page.locator("main")).to_contain_text("took longer than 1 ms")
    with opened(browser, holder, "settings") as page:
        expect(page.locator("tbody tr", has_text="tickTime")).to_contain_text("the file, line 1")


def test_keys_alone_suffice(browser, ensemble):
    with opened(browser, ensemble[0]) as page:
        expect(heading(page)).to_have_text("overview")
        for key, screen in enumerate(SCREENS, 1):
            page.keyboard.press(str(key))
            expect(heading(page)).to_have_text(screen)
        page.keyboard.press("5")
        page.keyboard.press("/")
        page.keyboard.type("no such session 4")
        expect(page.locator("main")).to_contain_text("0")
        expect(heading(page)).to_have_text("sessions")
        page.keyboard.press("Escape")
        page.keyboard.press("t")
        assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_a_page_stays_open_while_the_leader_is_killed(browser):
    with running(start(3)) as servers:
        leader = next(s for s in servers if tells(s, "ensemble")["server_state"] == "leader")
        other = next(s for s in servers if s is not leader)
        with opened(browser, other) as page, opened(browser, leader) as dead:
            expect(page.locator("#state")).to_contain_text("follower")
            expect(dead.locator("#state")).to_contain_text("leader")
            leader.kill()
            expect(dead.locator("#state")).to_have_text("the server does not answer", timeout=20_000)
            dead.wrong.clear()
            # One of the two others leads.
            others = "".join(str(n) for n, server in enumerate(servers, 1) if server is not leader)
            told = page.locator(".card", has_text=re.compile("^leader"))
            expect(told).to_have_text(re.compile(f"^leader[{others}]$"), timeout=30_000)
            dead.goto("about:blank")


def test_ten_thousand_sessions_are_shown_by_pages(browser):

    connect = struct.pack(">iqiqi16s?", 0, 0, 60_000, 0, 16, bytes(16), False)
    with running(start()) as (server,):
        # A connection that ends without closing its session leaves it until its timeout.
        for _ in range(SESSIONS // 100):
            many = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
            for one in many:
                one.sendall(struct.pack(">i", len(connect)) + connect)
            for one in many:
                one.recv(100)
                one.close()
        with opened(browser, server, "sessions") as page:
            expect(page.locator("main [role=status]")).to_contain_text("1 to 100 of 10,000", timeout=30_000)
            page.get_by_role("button", name="next").click()
            expect(page.locator("main [role=status]")).to_contain_text("101 to 200")
            assert page.locator("tbody tr").count() == 100


def test_names_of_znodes_are_never_taken_for_html(browser, ensemble):
    with client(*ensemble) as kazoo:
        kazoo.create("/<img src=x onerror=alert(1)>", b"", ephemeral=True)
        with opened(browser, ensemble[0], "sessions") as page:
            expect(page.locator("tbody")).to_contain_text("<img src=x onerror=alert(1)>")
            assert page.locator("main img").count() == 0
