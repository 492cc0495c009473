// The login. It is kept in memory alone: whoever reloads the page is logged out.

import { el } from "./dom.js";
import { log_in, log_out, login } from "./server.js";

export function login_button(changed) {
    const user = el("input", { name: "user", autocomplete: "off", required: true });
    const password = el("input", { name: "password", type: "password", autocomplete: "off", required: true });
    const wrong = el("p", { class: "bad", role: "alert" });
    const is_open = !isSecureContext;
    const form = el(
        "form",
        { onsubmit: submit },
        el("h2", {}, "Log in"),
        el(
            "p",
            { class: "faint" },
            "By the scheme digest, as clients do. A wrong password shows as missing permissions.",
        ),
        is_open
            ? el("p", { class: "bad" }, "This connection is not encrypted: others may read the password.")
            : null,
        el("label", {}, "user", user),
        el("label", {}, "password", password),
        wrong,
        el(
            "div",
            { class: "bar" },
            el("button", {}, "log in"),
            el("button", { type: "button", onclick: () => dialog.close() }, "cancel"),
        ),
    );
    const dialog = el("dialog", { "aria-label": "Log in" }, form);
    document.body.append(dialog);
    const button = el("button", {
        id: "login",
        type: "button",
        title: "Log in or out (key l)",
        onclick: click,
    });
    show();

    function show() {
        const { user, is_super } = login();
        button.textContent = user ? `log out ${user}${is_super ? " (super user)" : ""}` : "log in";
    }

    function click() {
        if (login().user) {
            log_out();
            show();
            changed();
        } else {
            form.reset();
            wrong.textContent = "";
            dialog.showModal();
        }
    }

    async function submit(event) {
        event.preventDefault();
        try {
            await log_in(user.value, password.value);
            dialog.close();
            form.reset();
            show();
            changed();
        } catch (error) {
            wrong.textContent = error.message;
        }
    }

    return button;
}
