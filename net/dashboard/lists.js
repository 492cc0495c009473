// Lists: slow requests, sessions, watches.

import { count, el, moment, Pages, rows, seconds, session, table } from "./dom.js";
import { ask, login, question } from "./server.js";

/** The keys that occur most often, with their numbers and their times in ms. */
function hottest(list, key) {
    const found = new Map();
    for (const entry of list) {
        const name = entry[key];
        if (name !== null && name !== undefined) {
            const { times, total_ms } = found.get(name) ?? { times: 0, total_ms: 0 };
            found.set(name, { times: times + 1, total_ms: total_ms + entry.total_ms });
        }
    }
    const sorted = [...found].sort(([, a], [, b]) => b.total_ms - a.total_ms).slice(0, 10);
    return sorted.map(([name, { times, total_ms }]) => [
        { long: String(name) },
        times,
        seconds(total_ms / 1000),
    ]);
}

/** What makes the server slow, one item each. */
export function findings(found) {
    return found.map(({ text, advice }) =>
        el("li", {}, `${text}. `, el("span", { class: "faint" }, advice)),
    );
}

export function slow() {
    const told = el("p", { class: "faint" });
    const found = el("ol", { class: "findings" });
    const hot = Object.entries({
        path: "hot paths",
        session_id_hex: "sessions",
        client: "clients",
        mostly: "mostly in",
        peer: "waited for server",
    }).map(([key, name]) => {
        const body = el("tbody");
        return { key, body, element: table([name, "[slow]", "in all"], body) };
    });
    const pages = new Pages(
        [
            "received (UTC)",
            "operation",
            "path",
            "[ms]",
            "mostly in",
            "stages, ms",
            "session",
            "zxid",
            "server",
        ],
        (slow) => [
            moment(slow.received),
            slow.operation,
            { long: slow.path ?? "" },
            slow.total_ms,
            slow.mostly,
            {
                long: Object.entries(slow.stages_ms)
                    .map(([stage, ms]) => `${stage} ${ms}`)
                    .join(", "),
            },
            slow.session_id_hex,
            slow.zxid_hex ?? "",
            String(slow.peer ?? ""),
        ],
        (slow) => `${slow.operation} ${slow.path} ${slow.session_id_hex} ${slow.mostly}`,
        50,
    );
    return {
        every_ms: 2000,
        element: el(
            "div",
            {},
            found,
            told,
            el(
                "div",
                { class: "charts" },
                hot.map(({ element }) => element),
            ),
            pages.element,
        ),
        async refresh() {
            const { slow_request_ms, total, slow_requests, ...told_of } = await ask("slow_requests");
            found.replaceChildren(...findings(told_of.findings));
            const took = `${count(total)} requests took longer than ${slow_request_ms} ms`;
            told.textContent = `${took}; the last ${slow_requests.length} are listed.`;
            for (const { key, body, element } of hot) {
                body.replaceChildren(...rows(hottest(slow_requests, key)));
                element.hidden = !body.children.length;
            }
            pages.set(slow_requests);
        },
    };
}

/** Sessions of the ensemble that have ephemerals or are connected here, as one list. */
function joined({ session_id_to_ephemeral_paths, expiry_time_to_session_ids_hex }, { connections }, watched) {
    const all = new Map();
    const entry = (id) => {
        if (!all.has(id)) {
            all.set(id, { id, connection: null, ephemerals: [], watches: [], expires_ms: null });
        }
        return all.get(id);
    };
    connections.forEach((connection) => {
        entry(connection.session_id_hex).connection = connection;
    });
    for (const [id, paths] of Object.entries(session_id_to_ephemeral_paths)) {
        entry(session(id)).ephemerals = paths;
    }
    for (const [id, paths] of Object.entries(watched.session_id_to_watched_paths)) {
        entry(session(id)).watches = paths;
    }
    for (const [at_ms, ids] of Object.entries(expiry_time_to_session_ids_hex)) {
        ids.forEach((id) => {
            entry(id).expires_ms = Number(at_ms);
        });
    }
    return [...all.values()].filter(({ id }) => id !== "0x0");
}

/** Paths, of which the first few are shown until somebody wants all. */
function paths(list, name) {
    if (!list.length) {
        return "";
    }
    const all = () => list.map((path) => el("div", {}, path));
    if (list.length <= 2) {
        return el("div", {}, all());
    }
    return el("details", {}, el("summary", {}, `${count(list.length)} ${name}`), all());
}

/** Asks for long lists seldom, and by hand. */
function by_hand(element, load) {
    const button = el(
        "button",
        { type: "button", onclick: () => load().catch(() => {}) },
        "read again (key r)",
    );
    button.dataset.again = "";
    return {
        element: el("div", {}, el("div", { class: "bar" }, button), element),
        refresh: load,
        every_ms: 10_000,
    };
}

export function sessions() {
    const pages = new Pages(
        [
            "session",
            "client",
            "last operation",
            "timeout",
            "[requests]",
            "[waiting]",
            "[average ms]",
            "ephemerals",
            "watches",
        ],
        ({ id, connection: c, ephemerals, watches }) => [
            id,
            c?.remote_socket_address ?? el("span", { class: "faint" }, "at another server"),
            c?.last_operation ?? "",
            c ? seconds(c.session_timeout / 1000) : "",
            c?.packets_received ?? "",
            c?.outstanding_requests ?? "",
            c?.avg_latency ?? "",
            paths(ephemerals, "ephemerals"),
            paths(watches, "watches"),
        ],
        ({ id, connection, ephemerals, watches }) =>
            [id, connection?.remote_socket_address, ...ephemerals, ...watches].join(" "),
    );
    return by_hand(pages.element, async () => {
        // One list at a time: the server makes no two at once either.
        const dump = await ask("dump");
        const connections = await ask("connections");
        pages.set(joined(dump, connections, await ask("watches")));
    });
}

export function watches() {
    const summary = el("p", { class: "faint" });
    const by_path = new Pages(
        ["path", "[sessions]", "who watches"],
        ([path, ids]) => [
            { long: path },
            ids.length,
            { long: ids.slice(0, 20).join(", ") + (ids.length > 20 ? ", ..." : "") },
        ],
        ([path, ids]) => `${path} ${ids.join(" ")}`,
    );
    const by_session = new Pages(
        ["session", "[paths]", "what it watches"],
        ([id, list]) => [id, list.length, paths(list, "paths")],
        ([id, list]) => `${id} ${list.join(" ")}`,
    );
    const list = el(
        "div",
        {},
        summary,
        el("h3", {}, "By path"),
        by_path.element,
        el("h3", {}, "By session"),
        by_session.element,
    );
    return by_hand(list, async () => {
        const { num_total_watches, num_paths, num_connections } = await ask("watch_summary");
        const watched = `${count(num_total_watches)} data watches on ${count(num_paths)} paths`;
        summary.textContent = `${watched} by ${count(num_connections)} connections of this server.`;
        const { path_to_session_ids_hex } = await ask("watches_by_path");
        const sorted = Object.entries(path_to_session_ids_hex).sort(([, a], [, b]) => b.length - a.length);
        by_path.set(sorted);
        const found = new Map();
        sorted.forEach(([path, ids]) => ids.forEach((id) => found.set(id, [...(found.get(id) ?? []), path])));
        by_session.set([...found]);
    });
}

export function audit() {
    const told = el("p", { class: "faint" });
    const pages = new Pages(
        ["record"],
        (line) => [{ long: line.replaceAll("\t", "  ") }],
        (line) => line,
    );
    return {
        every_ms: 5000,
        element: el("div", {}, told, pages.element),
        async refresh() {
            if (!login().is_super) {
                told.textContent = "The audit log is for super users: log in (key l).";
                pages.set([]);
                return;
            }
            const { lines } = await question("audit");
            told.textContent = "What this server has recorded last, the newest first.";
            pages.set(lines.reverse());
        },
    };
}
