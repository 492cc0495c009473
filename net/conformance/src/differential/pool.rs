//! What random requests are made of: paths of every class, data, access control lists, credentials.
//! The pools are small, so that requests meet.

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use ringkeeper_wire::jute;

/// Names of znodes that any server accepts.
const NAMES: &[&str] = &["a", "b", "c", "d", "long-name-of-a-znode", "é", "中文", "with space", "...", "%s"];

/// Paths that are wrong when written (docs/protocol.md, 8), or that belong to the server.
const ODD_PATHS: &[&str] = &[
    "",
    "a",
    "a/b",
    "//",
    "/a//b",
    "/a/",
    "//a",
    "/.",
    "/..",
    "/a/.",
    "/a/..",
    "/a/./b",
    "/a/../b",
    "/./a",
    "/a/.b",
    "/a/b..",
    "/\0",
    "/a\0b",
    "/\u{1}",
    "/a\u{1f}",
    "/a\u{7f}",
    "/a\u{80}",
    "/a\u{9f}",
    "/a\u{a0}",
    "/a\u{e000}",
    "/a\u{f8ff}",
    "/a\u{f900}",
    "/a\u{ffef}",
    "/a\u{fff0}",
    "/a\u{ffff}",
    "/a\u{1f600}",
    "/\u{10ffff}",
    " ",
    "\\",
    "/a\n",
    "/a\tb",
    "/a/b/",
];

const RESERVED_PATHS: &[&str] = &[
    "/",
    "/",
    "/zookeeper",
    "/zookeeper/quota",
    "/zookeeper/config",
    "/zookeeper/new",
    "/zookeeper/quota/a",
];

/// Bytes that are no UTF-8, and how a path with them begins.
const MALFORMED: &[&[u8]] = &[
    b"/a\xff",
    b"/\xc3",
    b"/a\xc3(",
    b"/\xe4\xb8",
    b"/\xed\xa0\x80",
    b"/\xed\xa0\xbd\xed\xb8\x80",
    b"/\xf0\x9f\x98",
    b"/\xf8\x88\x80\x80\x80",
    b"/\xc0\x80",
    b"/\xc0\xaf",
    b"/\xe0\x80\xaf",
    b"/\xf4\x90\x80\x80",
    b"/\x80\x80x",
];

/// A path that any server accepts, at most four levels deep.
pub(super) fn good_path(rng: &mut ChaCha8Rng) -> String {
    let depth = *[1, 1, 1, 2, 2, 3, 4].choose(rng).expect("not empty");
    (0..depth).map(|_| format!("/{}", name(rng))).collect()
}

/// A name of a child; the first four are the frequent ones.
pub(super) fn name(rng: &mut ChaCha8Rng) -> &'static str {
    let frequent = rng.random_ratio(9, 10);
    let names = if frequent { &NAMES[..4] } else { NAMES };
    names.choose(rng).expect("not empty")
}

/// A path that is wrong in one of the ways of the reference, as bytes.
pub(super) fn odd_path(rng: &mut ChaCha8Rng) -> Vec<u8> {
    if rng.random_ratio(1, 5) {
        MALFORMED.choose(rng).expect("not empty").to_vec()
    } else {
        ODD_PATHS.choose(rng).expect("not empty").as_bytes().to_vec()
    }
}

/// A path that every server has from the start, or one below.
pub(super) fn reserved_path(rng: &mut ChaCha8Rng) -> String {
    RESERVED_PATHS.choose(rng).expect("not empty").to_string()
}

/// Data for a znode; `None` is null.
pub(super) fn data(rng: &mut ChaCha8Rng) -> Option<Vec<u8>> {
    let len = match rng.random_range(0..20) {
        0 => return None,
        1 => 0,
        2 => rng.random_range(1000..10_000),
        3 if rng.random_ratio(1, 10) => rng.random_range(100_000..900_000),
        _ => rng.random_range(1..40),
    };
    let byte = rng.random_range(b'a'..=b'z');
    Some(vec![byte; len])
}

/// Text of a quota's limits, well or badly formed as far as the reference survives it.
pub(super) fn quota_limits(rng: &mut ChaCha8Rng) -> String {
    let mut limit = || -> i64 { *[-1, 0, 1, 2, 3, 5, 8, 40, 1000].choose(rng).expect("not empty") };
    let (count, bytes, hard_count, hard_bytes) = (limit(), limit(), limit(), limit());
    match rng.random_range(0..5) {
        0 => format!("count={count},bytes={bytes}"),
        1 => format!("count={count},bytes={bytes}=;byteHardLimit={hard_bytes};countHardLimit={hard_count}"),
        2 => format!("count={count},bytes={bytes}=;countHardLimit={hard_count}"),
        3 => format!("count={count},bytes={bytes};byteHardLimit={hard_bytes}"),
        _ => format!("count={hard_count},bytes={hard_bytes}=;byteHardLimit=-1;countHardLimit={hard_count}"),
    }
}

/// Credentials: scheme and data of an auth packet. Most are good.
pub(super) fn credentials(rng: &mut ChaCha8Rng) -> (Option<&'static str>, Option<&'static [u8]>) {
    const GOOD: &[(&str, &[u8])] = &[
        ("digest", b"alice:secret"),
        ("digest", b"bob:pw"),
        ("digest", b"super:test"),
        ("digest", b"carol:a:b"),
    ];
    const ODD: &[(Option<&str>, Option<&[u8]>)] = &[
        (Some("digest"), Some(b"nocolon")),
        (Some("digest"), Some(b"")),
        (Some("digest"), Some(b":")),
        (Some("digest"), Some(b"super:wrong")),
        (Some("digest"), None),
        (Some("ip"), Some(b"10.0.0.1")),
        (Some("ip"), None),
        (Some("world"), Some(b"anyone")),
        (Some("auth"), Some(b"")),
        (Some("nosuch"), Some(b"x")),
        (Some("Digest"), Some(b"alice:secret")),
        (Some(""), Some(b"x")),
        (None, Some(b"x")),
    ];
    if rng.random_ratio(4, 5) {
        let (scheme, auth) = *GOOD.choose(rng).expect("not empty");
        (Some(scheme), Some(auth))
    } else {
        *ODD.choose(rng).expect("not empty")
    }
}

/// One entry of an access control list: permissions, scheme, id.
type Entry = (i32, Option<&'static str>, Option<&'static str>);

const ALICE: &str = "alice:aYXlLOpEooaV1cRAvUL1fp9Qt7E=";
const BOB: &str = "bob:ikIaKsbtGweaHnb/jKn7OHqbunM=";

/// Lists that leave everybody able to go on.
const OPEN_LISTS: &[&[Entry]] = &[
    &[(31, Some("world"), Some("anyone"))],
    &[(31, Some("world"), Some("anyone")), (31, Some("world"), Some("anyone"))],
    &[(31, Some("ip"), Some("127.0.0.1"))],
    &[(31, Some("ip"), Some("127.0.0.0/8")), (1, Some("world"), Some("anyone"))],
];

/// Lists that deny something to somebody.
const CLOSED_LISTS: &[&[Entry]] = &[
    &[(1, Some("world"), Some("anyone"))],
    &[(2, Some("world"), Some("anyone"))],
    &[(4, Some("world"), Some("anyone"))],
    &[(8, Some("world"), Some("anyone")), (16, Some("world"), Some("anyone"))],
    &[(15, Some("world"), Some("anyone"))],
    &[(30, Some("world"), Some("anyone"))],
    &[(31, Some("digest"), Some(ALICE))],
    &[(31, Some("digest"), Some(BOB)), (1, Some("world"), Some("anyone"))],
    &[(31, Some("digest"), Some(ALICE)), (3, Some("digest"), Some(BOB)), (31, Some("digest"), Some(ALICE))],
    &[(31, Some("auth"), Some(""))],
    &[(17, Some("auth"), Some("ignored")), (1, Some("world"), Some("anyone"))],
    &[(31, Some("ip"), Some("10.0.0.0/8"))],
    &[(31, Some("ip"), Some("127.0.0.1/32"))],
    &[(31, Some("ip"), Some("0.0.0.0/0"))],
    &[(31, Some("ip"), Some("::1"))],
    &[(31, Some("ip"), Some("2001:db8::/32")), (1, Some("world"), Some("anyone"))],
    &[(0, Some("world"), Some("anyone"))],
    &[(-1, Some("world"), Some("anyone"))],
    &[(64, Some("world"), Some("anyone"))],
];

/// Lists that are malformed.
const BAD_LISTS: &[&[Entry]] = &[
    &[],
    &[(31, None, Some("anyone"))],
    &[(31, Some("world"), None)],
    &[(31, Some("auth"), None)],
    &[(31, Some("world"), Some("nobody"))],
    &[(31, Some("nosuch"), Some("x"))],
    &[(31, Some(""), Some(""))],
    &[(31, Some("digest"), Some("alice"))],
    &[(31, Some("digest"), Some("a:b:c"))],
    &[(31, Some("digest"), Some(":"))],
    &[(31, Some("digest"), Some("a:"))],
    &[(31, Some("digest"), Some(":b"))],
    &[(31, Some("digest"), Some(""))],
    &[(31, Some("ip"), Some("127.0.0.1/33"))],
    &[(31, Some("ip"), Some("127.0.0.1/-1"))],
    &[(31, Some("ip"), Some("127.0.0.1/"))],
    &[(31, Some("ip"), Some("127.0.0.1/a"))],
    &[(31, Some("ip"), Some("127.0.0.1/8/8"))],
    &[(31, Some("ip"), Some("127.0.0"))],
    &[(31, Some("ip"), Some("127.0.0.256"))],
    &[(31, Some("ip"), Some("::1/129"))],
    &[(31, Some("ip"), Some(":::"))],
    &[(31, Some("ip"), Some("localhost"))],
    &[(31, Some("ip"), Some(""))],
    &[(31, Some("super"), Some(""))],
    &[(31, Some("sasl"), Some("alice"))],
    &[(31, Some("x509"), Some("CN=alice"))],
    &[(31, Some("world"), Some("anyone")), (31, Some("digest"), Some("bad"))],
];

/// Appends an access control list. `lockable`: whether it may deny things.
pub(super) fn put_acl(rng: &mut ChaCha8Rng, lockable: bool, out: &mut Vec<u8>) {
    let lists = match rng.random_range(0..20) {
        0 if lockable => BAD_LISTS,
        1..6 if lockable => CLOSED_LISTS,
        6 if lockable && rng.random_ratio(1, 4) => return jute::put_i32(out, -1),
        _ => OPEN_LISTS,
    };
    let list = lists.choose(rng).expect("not empty");
    jute::put_len(out, list.len());
    for (perms, scheme, id) in *list {
        jute::put_i32(out, *perms);
        jute::put_buffer(out, scheme.map(str::as_bytes));
        jute::put_buffer(out, id.map(str::as_bytes));
    }
}
