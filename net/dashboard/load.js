// Throughput and latency, from the metrics of the last minutes.

import { heat, Line } from "./chart.js";
import { bytes, count, el, seconds } from "./dom.js";
import { histogram, quantile, rates, samples } from "./server.js";

const named = (name) => (other) => other === name;
const of_kind = (kind) => (name) =>
    name.startsWith("ringkeeper_request_seconds_count{") && name.includes(`kind="${kind}"`);
const per_second = (show) => (value) => `${show(value)}/s`;
const gauge = (name) => () => samples.map(({ values }) => values.get(name) ?? 0);
const rate = (counts) => () => rates(counts);

const LINES = [
    ["reads, pings and syncs", per_second(count), rate(of_kind("read"))],
    ["updates", per_second(count), rate(of_kind("update"))],
    ["notifications", per_second(count), rate(named("ringkeeper_notifications_sent_total"))],
    ["requests without an answer yet", count, gauge("outstanding_requests")],
    ["received", per_second(bytes), rate(named("bytes_received_count"))],
    ["sent", per_second(bytes), rate(named("response_bytes"))],
    [
        "commits",
        per_second(count),
        rate((name) => name === "commit_count" || name === "learner_commit_received_count"),
    ],
    ["connections", count, gauge("num_alive_connections")],
    ["CPU seconds", per_second(count), rate(named("process_cpu_seconds_total"))],
    ["output that clients have not read", bytes, gauge("ringkeeper_output_queue_bytes")],
];

export function throughput() {
    const lines = LINES.map(([name, show, values]) => ({ line: new Line(name, show), values }));
    return {
        element: el(
            "div",
            { class: "charts" },
            lines.map(({ line }) => line.element),
        ),
        async refresh() {
            lines.forEach(({ line, values }) => line.draw(values()));
        },
    };
}

/** What is drawn at once: whole requests, then the stages of a write in their order (docs/metrics.md). */
const STAGES = [
    ["read", "ringkeeper_request_seconds", 'kind="read"'],
    ["update", "ringkeeper_request_seconds", 'kind="update"'],
    ...["input", "queue", "prepare", "batch", "log_queue", "log", "commit", "delivery", "output"].map(
        (stage) => [stage, "ringkeeper_stage_seconds", `stage="${stage}"`],
    ),
];

export function latency() {
    let chosen = STAGES[1];
    const choice = el(
        "select",
        { "aria-label": "Stage", onchange: () => choose(choice.value) },
        STAGES.map(([name]) => el("option", { value: name, selected: name === chosen[0] }, name)),
    );
    const all = STAGES.map((stage) => ({ stage, map: heat(), figure: el("span", { class: "number" }) }));
    const grid = el(
        "div",
        { class: "heat" },
        all
            .map(({ stage, map, figure }) => [
                el("button", { type: "button", onclick: () => choose(stage[0]) }, stage[0]),
                map.canvas,
                figure,
            ])
            .flat(),
    );
    const detail = el("div", { class: "heat" });
    const title = el("h3");
    let bands = [];

    function choose(name) {
        chosen = STAGES.find(([stage]) => stage === name);
        choice.value = name;
        draw();
    }

    function draw() {
        for (const {
            stage: [, family, label],
            map,
            figure,
        } of all) {
            const times = histogram(family, label);
            const slowest = times.columns.map((column) =>
                quantile({ bounds: times.bounds, columns: [column] }, 0.99),
            );
            // From 10 us, which is faint, to 1 s.
            map.draw(
                slowest.map((time) =>
                    time > 0 ? Math.min(1, 0.08 + (Math.log10(Math.min(time, 1)) + 5) / 5) : 0,
                ),
            );
            figure.textContent = seconds(quantile(times, 0.99));
        }
        const times = histogram(chosen[1], chosen[2]);
        if (bands.length !== times.bounds.length) {
            bands = times.bounds.map(() => ({
                map: heat(),
                name: el("span", { class: "number" }),
                figure: el("span", { class: "number" }),
            }));
            detail.replaceChildren(
                ...bands.toReversed().flatMap(({ name, map, figure }) => [name, map.canvas, figure]),
            );
            bands.forEach(({ map }) => map.canvas.classList.add("row"));
        }
        const most = Math.max(1, ...times.columns.flat());
        title.textContent = `${chosen[0]}: how many took up to`;
        bands.forEach(({ name, map, figure }, j) => {
            const row = times.columns.map((column) => column[j]);
            name.textContent = times.bounds[j] === Infinity ? "more" : seconds(times.bounds[j]);
            map.draw(
                row.map((number) => (number ? 0.12 + (0.88 * Math.log1p(number)) / Math.log1p(most) : 0)),
            );
            figure.textContent = count(row.reduce((a, b) => a + b, 0));
        });
    }

    return {
        element: el(
            "div",
            {},
            el(
                "p",
                { class: "faint" },
                "The 99th percentile of each second, the newest at the right; the figure is that of the row.",
            ),
            grid,
            title,
            el("div", { class: "bar" }, choice),
            detail,
        ),
        async refresh() {
            draw();
        },
    };
}
