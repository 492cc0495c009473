# The entry to everything that is run by hand or by CI. `just` without a word lists the recipes.
# Rust alone runs and tests ringkeeper: `cargo run --release` and `cargo test --workspace` need none of this.

# Where the tests' build puts programs
debug := env("CARGO_TARGET_DIR", "target") / "debug"

_list:
    @just --list --unsorted

# Formatting, lints and documentation of all crates; changes no source
check: paths fuzz-targets
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    # As they ship: the simulator switches features on that they do not have by themselves.
    cargo clippy -p ringkeeper -p ringkeeper-client --all-targets --locked -- -D warnings
    RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --workspace --no-deps --document-private-items --locked --quiet

# Files that the documents name exist, and the manual's contents lack no page
[private]
paths:
    #!/usr/bin/env bash
    status=0
    for document in $(git ls-files '*.md' ':!results/*'); do
        for path in $(grep -oE '`[[:alnum:]_.-]+(/[[:alnum:]_.-]+)+`' "$document" | tr -d '`' | sort -u); do
            case "$path" in ./* | results/* | target/*) continue ;; esac
            if ! [ -e "$path" ] && ! [ -e "$(dirname "$document")/$path" ]; then
                echo "$document names $path, which does not exist" >&2
                status=1
            fi
        done
        for link in $(grep -oE '\]\([[:alnum:]_./-]+[)#]' "$document" | sed 's/^](//; s/[)#]$//' | sort -u); do
            if ! [ -e "$(dirname "$document")/$link" ]; then
                echo "$document has a link to $link, which does not exist" >&2
                status=1
            fi
        done
    done
    for page in $(git ls-files 'docs/*.md' 'docs/decisions/*.md' | sed 's|^docs/||'); do
        if [ "$page" != SUMMARY.md ] && ! grep -qF "($page)" docs/SUMMARY.md; then
            echo "docs/SUMMARY.md lacks $page" >&2
            status=1
        fi
    done
    exit $status

# Targets of the fuzzer, which are workspaces of their own, compile
[private]
fuzz-targets:
    #!/usr/bin/env bash
    set -euo pipefail
    for manifest in $(git ls-files '*/fuzz/Cargo.toml'); do
        RUSTFLAGS="-D warnings" cargo check --locked --quiet --no-default-features \
            --manifest-path "$manifest" --target-dir {{ debug }}/fuzz
    done

# All tests that need Rust alone
test:
    cargo test --workspace --locked

# All programs, as the tests build them: one by one they have other features, and take minutes more
[private]
programs:
    cargo build --workspace --bins --tests --locked

# Upgrades and downgrades one by one from and to the build before, which `.ci/previous-build` names by its commit
previous:
    #!/usr/bin/env bash
    set -euo pipefail
    commit=$(cat .ci/previous-build)
    build="$PWD/{{ debug }}/previous"
    if [ "$(cat "$build/commit" 2> /dev/null)" != "$commit" ]; then
        if ! git cat-file -e "$commit" 2> /dev/null && ! git fetch --quiet --depth 1 origin "$commit"; then
            echo "left out: this clone lacks $commit, the build before" >&2
            test "$(git rev-parse --is-shallow-repository)" = true
            exit
        fi
        rm -rf "$build"
        mkdir -p "$build/source"
        git archive "$commit" | tar --extract --directory "$build/source"
        CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=false \
            cargo build --locked --workspace --bin ringkeeper --manifest-path "$build/source/Cargo.toml" \
                --target-dir "$build/target"
        mv "$build/target/debug/ringkeeper" "$build/"
        rm -rf "$build/source" "$build/target"
        echo "$commit" > "$build/commit"
    fi
    RINGKEEPER_PREVIOUS="$build/ringkeeper" cargo test --locked --workspace --test ensemble upgrade -- --ignored

# Tests with clients and folders that are not ours; installs what it needs (on Debian, as root)
foreign *arguments:
    net/conformance/foreign/run {{ arguments }}

# The manifest for Kubernetes without Helm, anew from the chart; needs helm
chart:
    #!/usr/bin/env bash
    set -euo pipefail
    cd net/package
    helm lint --strict helm
    manifest=container/kubernetes.yaml
    objects=$(helm template ringkeeper helm --kube-version 1.25.0 --set peerSecret.existingSecret=ringkeeper-peer)
    sum=$(find helm -type f | LC_ALL=C sort | xargs cat | sha256sum | cut --delimiter ' ' --fields 1)
    sed --in-place '/^# From net\/package\/helm/,$d' $manifest
    printf '# From net/package/helm, whose files have the SHA-256 %s (just chart)\n%s\n' "$sum" "$objects" >> $manifest

# Who may do what: all requests, kinds of clients and permissions, compared with Apache ZooKeeper; then under rules
authorisation *arguments: programs
    {{ debug }}/conformance authorisation \
        --start-zookeeper "$(net/conformance/foreign/setup | tail -n 1)/lib" \
        --start-ringkeeper {{ debug }}/ringkeeper --rules {{ arguments }}

# Hostile clients at full size, against a release build of so many servers
hostile servers='1' *arguments:
    cargo build --release --locked -p ringkeeper
    cargo run --release --locked -p ringkeeper-conformance -- hostile --binary target/release/ringkeeper \
        --servers {{ servers }} --worst {{ arguments }}

# The same at small sizes, against the build of the tests
hostile-small: programs
    {{ debug }}/conformance hostile --binary {{ debug }}/ringkeeper \
        --divisor 20 --children 100000 --levels 2000 --connections 500 --growth-max-mib 300

# Replays one seed of the simulator, event by event
sim seed *arguments:
    cargo run --release --locked -p ringkeeper-sim -- seed {{ seed }} --trace {{ arguments }}

# Runs many seeds of the simulator
sims seeds='0..10000' *arguments:
    cargo run --release --locked -p ringkeeper-sim -- run --seeds {{ seeds }} {{ arguments }}

# Fuzzes one target for a minute, or for the seconds given; needs a nightly compiler and cargo-fuzz
[no-exit-message]
fuzz name seconds='60':
    #!/usr/bin/env bash
    set -euo pipefail
    target=$(git ls-files '*/fuzz_targets/{{ name }}.rs')
    if [ -z "$target" ]; then
        echo "there is no fuzz target {{ name }}; there are:" >&2
        git ls-files '*/fuzz_targets/*.rs' | sed 's|.*/||; s|\.rs$||' >&2
        exit 1
    fi
    cd "${target%/fuzz/*}"
    if [ -f fuzz/seeds.rs ]; then
        cargo run --quiet --manifest-path fuzz/Cargo.toml --example seeds
    fi
    cargo +nightly fuzz run {{ name }} -- -max_total_time={{ seconds }}

# What has changed in the client's interface since a commit, so that programs that use it may have to change
semver since:
    #!/usr/bin/env bash
    set -euo pipefail
    command -v cargo-semver-checks > /dev/null || cargo install cargo-semver-checks --locked
    cargo semver-checks --package ringkeeper-client --features tls --baseline-rev {{ since }}

# Measures the hot parts whose name contains NAME, such as `batch/create_100`
bench name:
    cargo bench --locked -p bench-harness --bench hot -- {{ name }}

# Measures experiments of the ZooKeeper paper, such as `fig5,table2`
paper names *arguments:
    cargo run --release --locked -p bench-harness -- paper --quick --only {{ names }} {{ arguments }}
