"""The pages `docs/start.md` and `docs/drills.md`: their commands and settings, run as they stand."""

import page

pytestmark = page.NEEDS

START, DRILLS = page.Page("start.md"), page.Page("drills.md")


def test_one_server(tmp_path):
    printed = page.run(f"""
{START.block("One server", "sh")}
await ringkeeper shell ls /
{START.block("One server", "sh", 1)}
kill %1
wait
""", tmp_path)
    assert "hello" in printed


def test_three_servers(tmp_path):
    commands, settings = START.block("Three servers", "sh", 1), START.block("Three servers", "text")
    machines = ""
    for number in (2, 1):
        # Each on a machine of its own, as far as folders and addresses tell.
        own = lambda text: text.replace("/var/lib/ringkeeper", f"$work/{number}").replace("zoo.cfg", f"{number}.cfg")
        machines += f"""
cat > {number}.cfg <<END
{own(settings)}
clientPortAddress=127.0.0.{number}
admin.serverAddress=127.0.0.{number}
END
(
# The doctor does not take a disk in memory for one.
set +e
{own(commands).replace("echo 1", f"echo {number}")}
) > $work/{number}.log 2>&1 &
"""
    printed = page.run(f"""
{START.block("Three servers", "sh")}
{machines}
await ringkeeper shell --servers zoo1:2181 ls /
{START.block("Three servers", "sh", 2).replace("zoo3:2181 get", "zoo2:2181 get")}
{START.block("Three servers", "sh", 3)}
""", tmp_path)
    assert "on two disks at least" in printed and '"leader_id"' in printed


def test_failure_drills(tmp_path):
    printed = page.run("cd $work\n" + "\n".join(DRILLS.blocks("sh")), tmp_path)
    assert "status 1: damage was found" in printed and "it does not start" in printed
