// The frame of the page: which screen is shown, when it is brought up to date, keys.

import { el } from "./dom.js";
import * as ensemble from "./ensemble.js";
import * as lists from "./lists.js";
import * as load from "./load.js";
import { ask, constants, sample } from "./server.js";
import * as recipes from "./recipes.js";
import { login_button } from "./session.js";
import * as settings from "./settings.js";
import * as tree from "./tree.js";

const SCREENS = [
    ["overview", "1", ensemble.screen],
    ["throughput", "2", load.throughput],
    ["latency", "3", load.latency],
    ["slow", "4", lists.slow],
    ["sessions", "5", lists.sessions],
    ["watches", "6", lists.watches],
    ["tree", "7", tree.screen],
    ["recipes", "8", recipes.screen],
    ["audit", "9", lists.audit],
    ["settings", "0", settings.screen],
];

const EVERY_MS = 1000;
const state = document.getElementById("state");
const main = document.getElementById("screen");
const nav = document.getElementById("screens");
let current;

nav.append(...SCREENS.map(([name, key]) => el("a", { href: `#${name}`, title: `key ${key}` }, name)));

function show() {
    const [name, , make] = SCREENS.find(([name]) => location.hash.split("?")[0] === `#${name}`) ?? SCREENS[0];
    if (current?.name !== name) {
        current = { name, ...make() };
        main.replaceChildren(el("h2", {}, name), current.element);
        document.title = `${name} - ringkeeper`;
        for (const link of nav.children) {
            link.toggleAttribute("aria-current", link.hash === `#${name}`);
        }
    }
    refresh_soon();
}

/** The screen that is shown is brought up to date in the next turn. */
function refresh_soon() {
    current.refreshed_ms = -Infinity;
    wake();
}

/** Brings the screen up to date; a server that does not answer is told of, and asked again. */
async function turn() {
    const screen = current;
    try {
        await sample();
        if (performance.now() - screen.refreshed_ms >= (screen.every_ms ?? EVERY_MS) - 50) {
            screen.refreshed_ms = performance.now();
            await screen.refresh();
        }
        const { server_id, server_state } = await ask("ensemble");
        const name = server_id === null ? "" : `server ${server_id}: `;
        state.textContent = name + (server_state ?? "does not serve");
        state.className = server_state ? "" : "bad";
    } catch (error) {
        const unanswered = ["TypeError", "TimeoutError", "AbortError"].includes(error.name);
        state.textContent = unanswered ? "the server does not answer" : error.message;
        state.className = "bad";
    }
}

async function run() {
    const { version } = await constants().catch(() => ({ version: "" }));
    document.querySelector("h1").title = version;
    for (;;) {
        const screen = current;
        if (document.visibilityState === "visible") {
            await turn();
        }
        // Another screen, chosen meanwhile, is not to wait.
        if (screen === current) {
            await new Promise((resolve) => {
                const timer = setTimeout(resolve, EVERY_MS);
                wake = () => {
                    clearTimeout(timer);
                    resolve();
                };
            });
        }
    }
}

let wake = () => {};

const THEMES = ["light dark", "light", "dark"];

function set_theme(theme) {
    document.documentElement.dataset.theme = theme;
    sessionStorage.setItem("theme", theme);
    document.getElementById("theme").textContent =
        theme === "light dark" ? "theme: system" : `theme: ${theme}`;
}

function next_theme() {
    set_theme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
}

function on_key(event) {
    const writes = event.target.matches("input, textarea, select");
    if (event.key === "Escape" && writes) {
        event.target.blur();
    }
    if (writes || document.querySelector("dialog[open]") || event.ctrlKey || event.metaKey || event.altKey) {
        return;
    }
    const chosen = SCREENS.find(([, key]) => key === event.key);
    const search = main.querySelector("input[type=search]");
    if (chosen) {
        location.hash = chosen[0];
        // At once: the next key may be for it.
        show();
        main.focus();
    } else if (event.key === "/" && search) {
        search.focus();
        event.preventDefault();
    } else if (event.key === "l") {
        document.getElementById("login").click();
        event.preventDefault();
    } else if (event.key === "t") {
        next_theme();
    } else if (event.key === "r") {
        refresh_soon();
    }
}

set_theme(sessionStorage.getItem("theme") ?? THEMES[0]);
document.querySelector("header").append(login_button(refresh_soon));
document.getElementById("theme").addEventListener("click", next_theme);
addEventListener("keydown", on_key);
addEventListener("hashchange", show);
document.addEventListener("visibilitychange", () => wake());
show();
run();
