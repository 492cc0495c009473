// The overview: this server, and the others as far as it knows of them.

import { bytes, card, count, el, rows, seconds, table } from "./dom.js";
import { findings } from "./lists.js";
import { ask, now } from "./server.js";

/** The list of slow requests, which has the findings, is long: it is asked for so seldom. */
const FINDINGS_EVERY_MS = 5000;

const HEADS = [
    "id",
    "role",
    "lag",
    "durable zxid",
    "queued",
    "log",
    "ping",
    "quorum address",
    "client address",
];

/** How many transactions are between two zxids; nothing if their epochs differ. */
function behind(newest, zxid) {
    const [a, b] = [BigInt(newest), BigInt(zxid)];
    return a >> 32n === b >> 32n ? Number(a - b) : null;
}

function role(server, state) {
    if (server.id === state.leader_id) {
        return "leader";
    }
    return server.learner_type === "observer" ? "observer" : "voter";
}

function lag(server, state) {
    if (server.id === state.server_id) {
        return "this server";
    }
    if (state.leader_id !== state.server_id) {
        return el("span", { class: "faint" }, "the leader knows");
    }
    if (!server.durable_zxid_hex) {
        return el("span", { class: "bad" }, "not synchronized");
    }
    const lacks = behind(state.last_zxid_hex, server.durable_zxid_hex);
    return lacks === null ? "in an older epoch" : lacks <= 0 ? "none" : `${count(lacks)} transactions`;
}

/** How long something took lately: half of it, and nine of ten. */
function took(times) {
    return times ? `${seconds(times.p50_ms / 1000)}, ${seconds(times.p90_ms / 1000)}` : "";
}

function server_row(server, state) {
    const zxid = server.id === state.server_id ? state.last_zxid_hex : server.durable_zxid_hex;
    const queued = server.queued_bytes === null ? "" : bytes(server.queued_bytes);
    return [
        String(server.id),
        role(server, state),
        lag(server, state),
        zxid ?? "",
        queued,
        took(server.id === state.server_id ? state.appends : server.acknowledges),
        took(server.answers_pings),
        server.server_addresses.join(", "),
        server.client_address,
    ];
}

export function screen() {
    const cards = el("div", { class: "cards" });
    const missing = el("p", { class: "bad", role: "alert" });
    const body = el("tbody");
    const found = el("ol", { class: "findings" });
    let found_ms = -Infinity;
    const others = el(
        "div",
        {},
        el("h3", {}, "Servers"),
        table(HEADS, body),
        el("p", { class: "faint" }, "Log and ping: half, and nine of ten, within so long in the last minutes."),
    );
    return {
        element: el("div", {}, missing, found, cards, others),
        async refresh() {
            const [state, sizes, snapshot] = await Promise.all([
                ask("ensemble"),
                ask("dirs").catch(() => ({})),
                ask("last_snapshot").catch(() => ({})),
            ]);
            if (performance.now() - found_ms >= FINDINGS_EVERY_MS) {
                found_ms = performance.now();
                const told = await ask("slow_requests").catch(() => ({ findings: [] }));
                found.replaceChildren(...findings(told.findings));
            }
            missing.textContent = state.server_state ? "" : `This server does not serve: ${state.missing}`;
            const mood = (bad) => (bad ? "bad" : "");
            const elections = now("looking_count");
            const election_ms = now("election_time_sum") / (now("election_time_count") || 1);
            cards.replaceChildren(
                card("state", state.server_state ?? "looking", state.server_state ? "good" : "bad"),
                card("leader", state.leader_id ?? (state.servers.length ? "none" : "itself")),
                card("epoch", state.epoch ?? "-"),
                card("last zxid", state.last_zxid_hex),
                card("connections", count(now("num_alive_connections"))),
                card("sessions", count(now("global_sessions"))),
                card("znodes", count(now("znode_count"))),
                card("data in memory", bytes(now("approximate_data_size"))),
                card("elections", elections ? `${elections}, ${seconds(election_ms / 1000)} each` : "none"),
                card("uptime", seconds(now("uptime") / 1000)),
                card("resident memory", bytes(now("process_resident_memory_bytes"))),
                card(
                    "disk",
                    now("ringkeeper_disk_full")
                        ? "full"
                        : bytes((sizes.datadir_size ?? 0) + (sizes.logdir_size ?? 0)),
                    mood(now("ringkeeper_disk_full")),
                ),
                card(
                    "last snapshot",
                    snapshot.timestamp > 0
                        ? `${seconds(Date.now() / 1000 - snapshot.timestamp)} ago`
                        : "none",
                ),
                card(
                    "damage to repair",
                    now("ringkeeper_repairs_pending") || "none",
                    mood(now("ringkeeper_repairs_pending")),
                ),
            );
            others.hidden = !state.servers.length;
            body.replaceChildren(...rows(state.servers.map((server) => server_row(server, state))));
        },
    };
}
