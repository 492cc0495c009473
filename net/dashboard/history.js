// The history of a znode: what the server's log still has of its changes, read when it is opened.

import { decode, hex, shown_difference, text_of } from "./data.js";
import { bytes, el, moment } from "./dom.js";
import { question } from "./server.js";

const HAS_DATA = ["create", "setData", "reconfig"];

/** The data that a change has set, if the server shows it. */
function data_of(change) {
    if (change.data_base64 !== undefined) {
        return decode(change.data_base64);
    }
    return new TextEncoder().encode(change.data ?? "");
}

/** What has been set, compared with what was there before. */
function comparison(change, earlier, more) {
    const note = (text) => el("p", { class: "faint" }, text);
    const withheld = note(
        "The ACL has changed since the znode was created: its data is shown to super users alone.",
    );
    if (change.former) {
        return [note("This was a znode that had the same path before. Its data is not shown.")];
    }
    if (!HAS_DATA.includes(change.op)) {
        return [note("The data was not changed.")];
    }
    if (change.withheld) {
        return [withheld];
    }
    const after = data_of(change);
    // The ACL may change between two pages.
    const is_compared = earlier && !earlier.withheld;
    const before = is_compared ? data_of(earlier) : null;
    const is_text = [after, before].every((data) => !data || text_of(data) !== null);
    const show = is_text ? text_of : hex;
    if (before && change.op !== "create") {
        return [shown_difference(show(before), show(after))];
    }
    const shown = el("pre", { "aria-label": "What was set", tabindex: 0 }, show(after) || "(none)");
    if (change.op === "create") {
        return [shown];
    }
    if (earlier?.withheld) {
        return [shown, withheld];
    }
    return [
        shown,
        note(more ? "Ask for older changes to compare it." : "The log no longer has what was there before."),
    ];
}

function summary_of(change) {
    const { op, multi, version, entries } = change;
    const parts = [
        multi ? `${op} in a multi` : op,
        op === "create" ? "version 0" : null,
        version === undefined ? null : `${op === "setACL" ? "version of the ACL" : "version"} ${version}`,
        change.bytes === undefined ? null : bytes(change.bytes),
        entries === undefined ? null : `entries: ${entries}`,
        change.owner === undefined ? null : `owner ${change.owner}`,
        `zxid ${change.zxid_hex}`,
        `session ${change.session_hex}`,
    ];
    return `${moment(change.time_ms)} ${parts.filter(Boolean).join(", ")}`;
}

function end_of(page) {
    if (page.before_hex) {
        const back = page.looked_back_to_ms === null ? "" : ` to ${moment(page.looked_back_to_ms)} (UTC)`;
        return `The log has been looked through back${back}.`;
    }
    if (page.log_has_creation) {
        return "This is everything since the znode was created.";
    }
    return (
        `The log of this server begins after zxid ${page.log_begins_after_hex}, later than the znode, which ` +
        `was created at zxid ${page.created_hex}: older changes are no longer known here.`
    );
}

export function history_part({ path, readable }) {
    if (!readable) {
        return null;
    }
    const list = el("ul", { class: "plain", "aria-label": "Changes" });
    const told = el("p", { class: "faint", role: "status" });
    const older = el("button", { type: "button", disabled: true, onclick: load }, "older");
    const changes = [];
    let before_hex = null;
    let is_asked = false;

    function entry(change) {
        const place = el("div");
        const at = changes.length;
        const draw = () => {
            const earlier = changes
                .slice(at + 1)
                .find((it) => it.change.op === "delete" || HAS_DATA.includes(it.change.op))?.change;
            const compared = earlier && earlier.op !== "delete" && !earlier.former ? earlier : null;
            place.replaceChildren(...comparison(change, compared, before_hex));
        };
        const element = el(
            "details",
            { ontoggle: () => element.open && draw() },
            el("summary", {}, summary_of(change)),
            place,
        );
        changes.push({ change, element, draw });
        return el("li", {}, element);
    }

    async function load() {
        older.disabled = true;
        told.className = "faint";
        told.textContent = "The log is being read.";
        try {
            const page = await question("history", before_hex ? { path, before_hex } : { path });
            ({ before_hex } = page);
            list.append(...page.changes.map(entry));
            // What is older is now there to be compared.
            changes.filter(({ element }) => element.open).forEach(({ draw }) => draw());
            told.textContent = end_of(page);
            older.disabled = !before_hex;
        } catch (error) {
            told.className = "bad";
            told.textContent = error.message;
            older.disabled = false;
        }
    }

    const part = el(
        "details",
        {
            ontoggle: () => {
                if (part.open && !is_asked) {
                    is_asked = true;
                    load();
                }
            },
        },
        el("summary", {}, "changes that the log still has, the newest first (UTC)"),
        list,
        told,
        el("div", { class: "bar" }, older),
    );
    return el("section", {}, el("h3", {}, "History"), part);
}
