// The configuration, and where each setting comes from.

import { el, Pages } from "./dom.js";
import { ask } from "./server.js";

/** Names of the command `configuration` and those of the file. */
const KEYS = {
    client_port: "clientPort",
    data_dir: "dataDir",
    data_log_dir: "dataLogDir",
    tick_time: "tickTime",
    max_client_cnxns: "maxClientCnxns",
    min_session_timeout: "minSessionTimeout",
    max_session_timeout: "maxSessionTimeout",
    client_port_listen_backlog: "clientPortListenBacklog",
};

/** The lines of a file of properties that set something: [key, value, number of the line]. */
function parsed(text) {
    const lines = text.split("\n").map((line, i) => [line.trim(), i + 1]);
    return lines
        .filter(([line]) => line && !/^[#!]/.test(line))
        .map(([line, number]) => {
            const [, key, value] = line.match(/^([^=:\s]+)\s*[=:]?\s*(.*)$/);
            return [key.replace(/^zookeeper\./, ""), value, number];
        });
}

export function screen() {
    const pages = new Pages(
        ["setting", "value", "from"],
        ([key, value, from]) => [key, { long: String(value) }, from],
        (row) => row.join(" "),
        200,
    );
    const environment = new Pages(
        ["name", "value"],
        ([name, value]) => [name, { long: String(value) }],
        (row) => row.join(" "),
        200,
    );
    return {
        every_ms: 60_000,
        element: el("div", {}, pages.element, el("h3", {}, "Environment"), environment.element),
        async refresh() {
            const file = parsed((await ask("initial_configuration")).initial_configuration ?? "");
            const in_force = await ask("configuration");
            const named = new Map(file.map(([key, , line]) => [key, line]));
            const known = Object.entries(KEYS).map(([name, key]) => {
                const from = named.has(key) ? `the file, line ${named.get(key)}` : "default or command line";
                return [key, in_force[name], from];
            });
            const others = file.filter(([key]) => !Object.values(KEYS).includes(key));
            pages.set([
                ...known,
                ...others.map(([key, value, line]) => [key, value, `the file, line ${line}`]),
            ]);
            const { command, error, ...rest } = await ask("environment");
            environment.set(Object.entries(rest));
        },
    };
}
