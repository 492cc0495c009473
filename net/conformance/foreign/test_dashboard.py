"""The dashboard in a real browser: Debian's chromium, driven by playwright."""

import contextlib
import json
import re
import signal
import socket
import struct
import urllib.request

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl
from playwright.sync_api import expect, sync_playwright

from server import SUBJECT, Server, free_port, running

# The admin listener's thread yields to all others, and the machine may be busy with other tests.
expect.set_options(timeout=30_000)

pytestmark = pytest.mark.skipif(SUBJECT != "ringkeeper", reason="Apache ZooKeeper has no dashboard")

SCREENS = ["overview", "throughput", "latency", "slow", "sessions", "watches", "tree", "recipes", "audit", "settings"]

SESSIONS = 10_000


def start(count=1, **config):
    """An ensemble, each server with an admin listener on a port of its own."""
    lines = {"admin.enableServer": "true", "admin.serverAddress": "127.0.0.1", "ringkeeper.slowRequestMs": "1",
             "audit.enable": "true"}
    if count > 1:
        lines |= {"initLimit": "10", "syncLimit": "5"}
        lines |= {f"server.{n}": f"127.0.0.1:{free_port()}:{free_port()}" for n in range(1, count + 1)}
    servers = [Server(**lines, **config, **{"admin.serverPort": free_port()}) for _ in range(count)]
    for number, server in enumerate(servers, 1):
        (server.data_dir / "myid").write_text(f"{number}\n")
    return servers


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
    page, wrong, unanswered = context.new_page(), [], []
    page.on("request", lambda request: unanswered.append(request.url))
    for end in ("requestfinished", "requestfailed"):
        page.on(end, lambda request: unanswered.remove(request.url))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: request.url.startswith(url(server)) or wrong.append(request.url))
    page.goto(f"{url(server)}dashboard/#{screen}")
    page.wrong = wrong
    try:
        yield page
    except Exception as error:
        error.add_note(f"{page.evaluate('document.visibilityState')}, unanswered: {unanswered}, errors: {wrong}")
        raise
    context.close()
    assert wrong == []


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
            page.keyboard.press(str(key % 10))
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


def test_a_page_tells_of_a_server_that_hangs_and_goes_on_when_it_answers(browser):
    with running(start()) as (server,), opened(browser, server) as page:
        expect(page.locator("#state")).to_contain_text("standalone")
        server.process.send_signal(signal.SIGSTOP)
        try:
            expect(page.locator("#state")).to_have_text("the server does not answer", timeout=20_000)
        finally:
            server.process.send_signal(signal.SIGCONT)
        expect(page.locator("#state")).to_contain_text("standalone")


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


def log_in(page, user, password):
    page.keyboard.press("l")
    page.get_by_label("user").fill(user)
    page.get_by_label("password").fill(password)
    page.keyboard.press("Enter")
    expect(page.locator("#login")).to_contain_text(f"log out {user}")


def test_who_has_logged_in_edits_and_who_logs_out_does_not(browser, ensemble):
    with client(*ensemble) as kazoo:
        kazoo.create("/edited", b"before\nsame")
        with opened(browser, ensemble[0], "tree?path=/edited") as page:
            told = page.locator("main [role=status]").first
            expect(page.locator("main pre")).to_have_text("before\nsame")
            expect(page.get_by_text("edit", exact=True)).to_have_count(0)
            log_in(page, "bob", "wrong")
            expect(page.locator("main pre")).to_have_text("before\nsame")
            expect(page.get_by_text("edit", exact=True)).to_have_count(0)
            page.keyboard.press("l")
            expect(page.locator("#login")).to_have_text("log in")
            log_in(page, "super", "test")
            page.get_by_text("edit", exact=True).first.click()
            page.get_by_label("New data").fill("after\nsame")
            page.get_by_role("button", name="compare").click()
            expect(page.get_by_label("Difference")).to_have_text("- before\n+ after\n  same\n")
            page.get_by_role("button", name="set, if it still has version 0").first.click()
            expect(told).to_have_text("setData /edited: done")
            assert kazoo.get("/edited")[0] == b"after\nsame"
            # Somebody else changes it while it is open.
            page.get_by_text("edit", exact=True).first.click()
            kazoo.set("/edited", b"theirs")
            page.get_by_label("New data").fill("mine")
            page.get_by_role("button", name="compare").click()
            page.get_by_role("button", name="set, if it still has version 1").first.click()
            expect(told).to_contain_text("Somebody else has changed it")
            assert kazoo.get("/edited")[0] == b"theirs"
            page.wrong[:] = [line for line in page.wrong if "409" not in line]
            page.keyboard.press("l")
            expect(page.locator("#login")).to_have_text("log in")
            # The editor with its difference goes first.
            expect(page.get_by_label("Difference")).to_have_count(0)
            expect(page.locator("main pre")).to_have_text("theirs")
            expect(page.get_by_text("edit", exact=True)).to_have_count(0)


def test_a_znode_shows_its_history_as_far_as_the_log_reaches(browser, ensemble):
    with client(*ensemble) as kazoo:
        kazoo.create("/history", b"one\nsame")
        kazoo.set("/history", b"two\nsame")
        with kazoo.transaction() as multi:
            multi.set_data("/history", b"three\nsame")
            multi.create("/history/child", b"other")
        kazoo.set_acls("/history", [make_acl("world", "anyone", all=True)])
        for number in range(30):
            kazoo.set("/history", b"\xff%d" % number)
        session = f"session {kazoo.client_id[0]:#x}"
        kazoo.sync("/history")
        with opened(browser, ensemble[1], "tree?path=/history") as page:
            changes = page.get_by_label("Changes").locator("li")
            older = page.get_by_role("button", name="older")
            expect(page.get_by_role("heading", name="History")).to_be_visible()
            expect(changes).to_have_count(0)
            page.get_by_text("changes that the log still has").click()
            expect(changes).to_have_count(20)
            changes.first.locator("summary").click()
            expect(changes.first).to_contain_text(
                "The ACL has changed since the znode was created: its data is shown to super users alone.")
            expect(changes.first.get_by_label("Difference")).to_have_count(0)
            log_in(page, "super", "test")
            # The screen is made anew, a moment later.
            expect(changes).to_have_count(0)
            page.get_by_text("changes that the log still has").click()
            expect(changes).to_have_count(20)
            newest = f"setData, version 32, 3 B, zxid {kazoo.exists('/history').mzxid:#x}, {session}"
            expect(changes.first).to_contain_text(newest)
            changes.first.locator("summary").click()
            expect(changes.first.get_by_label("Difference")).to_contain_text("- 000000  ff 32 38")
            # The data before it is on the next page.
            changes.last.locator("summary").click()
            expect(changes.last).to_contain_text("Ask for older changes to compare it.")
            older.click()
            expect(changes).to_have_count(34)
            expect(changes.nth(19).get_by_label("Difference")).to_contain_text("+ 000000  ff 31 30")
            expect(changes.nth(30)).to_contain_text("setACL, version of the ACL 1, entries: 1")
            expect(changes.nth(31)).to_contain_text("setData in a multi, version 2")
            changes.nth(31).locator("summary").click()
            expect(changes.nth(31).get_by_label("Difference")).to_have_text("- two\n+ three\n  same\n")
            expect(changes.last).to_contain_text("create, version 0, 8 B")
            changes.last.locator("summary").click()
            expect(changes.last.get_by_label("What was set")).to_have_text("one\nsame")
            expect(page.locator("main")).to_contain_text("This is everything since the znode was created.")
            expect(older).to_be_disabled()
            page.set_viewport_size({"width": 360, "height": 800})
            overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert overflow <= 0
        kazoo.set_acls("/history", [make_acl("digest", "bob:x", read=True)])
        kazoo.sync("/history")
        with opened(browser, ensemble[1], "tree?path=/history") as page:
            expect(page.locator("main")).to_contain_text("You may not read it.")
            expect(page.get_by_role("heading", name="History")).to_have_count(0)
            # The server has refused the list of children.
            page.wrong[:] = [line for line in page.wrong if "403" not in line]


def test_a_history_says_where_the_log_begins_later_than_the_znode(browser):
    with running(start(snapCount="100", preAllocSize="64")) as (server,), client(server) as kazoo:
        kazoo.create("/old", b"0")
        kazoo.create("/other")
        with opened(browser, server) as page:
            for _ in range(100):
                for _ in range(50):
                    kazoo.set("/other", bytes(1000))
                page.goto(f"{url(server)}dashboard/#tree?path=/")
                expect(page.get_by_label("Path", exact=True)).to_have_value("/")
                page.goto(f"{url(server)}dashboard/#tree?path=/old")
                expect(page.get_by_label("Path", exact=True)).to_have_value("/old")
                page.get_by_text("changes that the log still has").click()
                told = page.locator("section", has_text="History").get_by_role("status")
                expect(told).to_have_text(re.compile(r"^(This|The log of this server) .*\.$"))
                if "begins after zxid 0x1" in told.inner_text():
                    break
            created = kazoo.exists("/old").czxid
            expect(told).to_contain_text(f"created at zxid {created:#x}: older changes are no longer known here.")
            expect(page.get_by_label("Changes").locator("li")).to_have_count(0)


def test_a_screen_that_is_chosen_while_the_one_before_waits_for_its_server_is_shown(browser, ensemble):
    held = []
    with opened(browser, ensemble[1], "overview") as page:
        expect(page.locator("#state")).to_contain_text("server 2")
        page.route("**/metrics*", lambda route: held.append(route), times=1)
        while not held:
            page.wait_for_timeout(20)
        page.evaluate("location.hash = '#tree?path=/'")
        expect(heading(page)).to_have_text("tree")
        held[0].continue_()
        expect(page.get_by_label("Path", exact=True)).to_have_value("/")


def test_znodes_are_created_limited_and_deleted(browser, ensemble):
    with client(*ensemble) as kazoo, opened(browser, ensemble[1], "tree?path=/") as page:
        told = page.locator("main [role=status]").first
        log_in(page, "super", "test")
        page.get_by_text("create a child").click()
        page.get_by_label("Name of the child").fill("made here")
        page.get_by_label("Data of the child").fill("x")
        page.get_by_role("button", name="create", exact=True).click()
        expect(told).to_have_text("create /made here: done")
        page.get_by_role("link", name="made here").click()
        expect(page.locator("main pre")).to_have_text("x")
        page.get_by_text("edit", exact=True).nth(1).click()
        page.get_by_label("New ACL").fill("world:anyone:r\nauth::cdrwa")
        page.locator("details[open] button").click()
        expect(told).to_have_text("setAcl /made here: done")
        assert {entry.perms for entry in kazoo.get_acls("/made here")[0]} == {1, 31}
        page.get_by_text("edit", exact=True).nth(2).click()
        page.get_by_label("count", exact=True).fill("5")
        page.get_by_role("button", name="set the quota").click()
        expect(page.locator("main")).to_contain_text("znodes: 1 of 5")
        assert kazoo.get("/zookeeper/quota/made here/zookeeper_limits")[0].startswith(b"count=5,bytes=-1")
        page.get_by_text("delete", exact=True).click()
        remove = page.get_by_role("button", name="delete, if it still has version 0")
        expect(remove).to_be_disabled()
        page.get_by_label("The path once more").fill("/made here")
        remove.click()
        expect(page.get_by_label("Path", exact=True)).to_have_value("/")
        assert kazoo.exists("/made here") is None
        page.goto(f"{url(ensemble[1])}dashboard/#audit")
        expect(page.locator("tbody")).to_contain_text("operation=delete")


def test_children_are_shown_by_pages(browser, ensemble):
    with client(*ensemble) as kazoo, opened(browser, ensemble[0]) as page:
        kazoo.create("/many")
        sent = [kazoo.create_async(f"/many/n{number:05}") for number in range(2500)]
        [one.get() for one in sent]
        kazoo.sync("/many")
        page.goto(f"{url(ensemble[0])}dashboard/#tree?path=/many")
        where = page.locator("main .bar [role=status]")
        names = page.locator("tbody").first.locator("tr td:first-child")
        expect(where).to_have_text("page 1, 2,500 children")
        expect(names.first).to_have_text("n00000")
        page.get_by_role("button", name="next").click()
        expect(names.first).to_have_text("n00100")
        page.get_by_role("button", name="previous").click()
        expect(names.first).to_have_text("n00000")
        page.get_by_label("Search").fill("99")
        page.keyboard.press("Enter")
        expect(where).to_contain_text("found of 2,500 children")
        expect(names.first).to_have_text("n00099")


def test_locks_and_elections_are_recognised(browser, ensemble):
    with client(*ensemble) as first, client(*ensemble) as second, opened(browser, ensemble[0]) as page:
        held, waits = first.Lock("/lock", "first host"), second.Lock("/lock", "second host")
        held.acquire()
        waiting = waits.acquire(blocking=False)
        assert not waiting
        line = [first.create("/line/_c_a-latch-", b"one", ephemeral=True, sequence=True, makepath=True),
                second.create("/line/_c_b-latch-", b"two", ephemeral=True, sequence=True)]
        page.goto(f"{url(ensemble[0])}dashboard/#recipes?path=/line")
        expect(page.locator("tbody tr", has_text="lock or election")).to_contain_text("/lock")
        rows = page.locator("tbody").last.locator("tr")
        expect(rows).to_have_count(len(line))
        expect(rows.first).to_contain_text("leads")
        expect(rows.first).to_contain_text("one")
        expect(rows.last).to_contain_text("waits for")
